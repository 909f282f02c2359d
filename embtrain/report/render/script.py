"""The only script of a page: sorts the table of scores, and finds neighbours on the map of the vectors.

It reads nothing but the page, and shows text of the data as text, never as markup.
"""

SCRIPT = r""""use strict";
(() => {
  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target && target.querySelector("details");
    if (fold) fold.open = true;
  };
  addEventListener("hashchange", openTarget);
  if (location.hash) openTarget();

  /* A table whose rows are sorted by the button of a column: the best first, then the reverse. */
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const compare = (a, b) => isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const first = head.dataset.first, other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      const value = row => row.cells[column].dataset.order;
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b), sign = order === "ascending" ? 1 : -1;
        return x === "" || y === "" ? (x === "") - (y === "") : sign * compare(x, y);
      });
      heads.forEach(each => each.setAttribute("aria-sort", each === head ? order : "none"));
      body.append(...rows);
    }));
  }

  /* The map of the vectors and the neighbours of its entries. */
  const element = document.getElementById("map-data");
  if (!element) return;
  const data = JSON.parse(element.textContent), names = data.names, k = data.k, half = data.width / 2;
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const words = text => {
    const b = bytes(text);
    return Array.from({length: b.length / 2}, (_, i) => b[2 * i] + 256 * b[2 * i + 1]);
  };
  const near = words(data.near), xy = words(data.xy), cosines = new Int8Array(bytes(data.cosines).buffer);
  const n = xy.length / 2, NONE = 65535;
  const fold = text => text.normalize("NFC").toLowerCase();
  const folded = names.map(fold), row = new Map();
  folded.forEach((name, i) => { if (!row.has(name)) row.set(name, i); });
  const exact = new Map(names.map((name, i) => [name, i]));

  const byId = id => document.getElementById(id);
  const map = byId("map"), svg = map.querySelector("svg"), input = byId("map-word");
  const list = byId("map-list"), note = byId("map-note"), hover = byId("map-hover");
  const draw = (tag, attributes, parent) => {
    const made = document.createElementNS(svg.namespaceURI, tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    return parent.appendChild(made);
  };
  const rings = draw("g", {class: "rings"}, svg), pointed = draw("g", {class: "pointed"}, svg);
  const mark = (parent, i, radius) => {
    const x = xy[2 * i], y = xy[2 * i + 1], isRight = x > half;
    draw("circle", {cx: x, cy: y, r: radius}, parent);
    const side = isRight ? {x: x - 9, "text-anchor": "end"} : {x: x + 9, "text-anchor": "start"};
    draw("text", {...side, y: y + 4}, parent).textContent = names[i];
  };
  const button = (i, cosine) => {
    const [item, made, name] = ["li", "button", "bdi"].map(tag => document.createElement(tag));
    made.type = "button";
    name.textContent = names[i];
    made.append(name);
    made.addEventListener("click", () => show(i, true));
    item.append(made);
    if (cosine !== null) {
      const number = document.createElement("span");
      number.textContent = (cosine / 100).toFixed(2).replace("-", "\u2212");
      item.append(number);
    }
    list.append(item);
  };
  let chosen = data.start, current = Math.min(chosen, n - 1);
  const show = (i, isTyped) => {
    chosen = i;
    if (i < n) current = i;
    if (isTyped) input.value = names[i];
    list.replaceChildren();
    rings.replaceChildren();
    if (i < n) mark(rings, i, 7);
    for (let j = i * k; j < (i + 1) * k && near[j] !== NONE; j++) {
      button(near[j], cosines[j]);
      if (near[j] < n) draw("circle", {cx: xy[2 * near[j]], cy: xy[2 * near[j] + 1], r: 4}, rings);
    }
    note.textContent = `Nearest to ${names[i]}` + (i < n ? "" : ", which is too rare for the map");
  };
  const search = () => {
    const text = input.value.trim(), query = fold(text);
    if (!query) return show(chosen, false);
    const i = exact.has(text) ? exact.get(text) : row.get(query);
    if (i !== undefined) return show(i, false);
    const matches = [];
    for (const test of [name => name.startsWith(query), name => name.includes(query)])
      for (let j = 0; j < names.length && matches.length < k; j++)
        if (test(folded[j]) && !matches.includes(j)) matches.push(j);
    list.replaceChildren();
    rings.replaceChildren();
    matches.forEach(j => button(j, null));
    note.textContent = matches.length ? `No entry is spelled ${text}; similar spellings:`
      : `${text} is not among the ${names.length} entries of this page`;
  };
  input.addEventListener("input", search);
  const point = i => {
    pointed.replaceChildren();
    hover.textContent = i === null ? "" : names[i];
    if (i !== null) mark(pointed, current = i, 6);
  };
  const nearest = (x, y, limit, allowed) => {
    let best = null, least = limit;
    for (let i = 0; i < n; i++) {
      const dx = xy[2 * i] - x, dy = xy[2 * i + 1] - y, distance = dx * dx + dy * dy;
      if (distance < least && (!allowed || allowed(dx, dy))) { best = i; least = distance; }
    }
    return best;
  };
  const at = event => {
    const box = svg.getBoundingClientRect(), scale = data.width / box.width;
    return nearest((event.clientX - box.left) * scale, (event.clientY - box.top) * scale, (18 * scale) ** 2, null);
  };
  svg.addEventListener("pointermove", event => point(at(event)));
  svg.addEventListener("pointerleave", () => point(null));
  svg.addEventListener("click", event => { const i = at(event); if (i !== null) show(i, true); });
  const directions = {
    ArrowRight: (dx, dy) => dx > 0 && dx >= Math.abs(dy), ArrowLeft: (dx, dy) => -dx > 0 && -dx >= Math.abs(dy),
    ArrowDown: (dx, dy) => dy > 0 && dy >= Math.abs(dx), ArrowUp: (dx, dy) => -dy > 0 && -dy >= Math.abs(dx)};
  map.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in directions) {
      const next = nearest(xy[2 * current], xy[2 * current + 1], Infinity, directions[event.key]);
      if (next !== null) point(next);
    } else if (event.key === "Home") point(0);
    else if (event.key === "Enter" || event.key === " ") show(current, true);
    else if (event.key === "Escape") point(null);
    else return;
    event.preventDefault();
  });
  map.addEventListener("focus", () => point(current));
  map.addEventListener("blur", () => point(null));
  map.tabIndex = 0;
  map.setAttribute("role", "application");
  byId("map-finder").hidden = false;
  show(chosen, true);
})();
"""
