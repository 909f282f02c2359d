"""The style sheet of a page: one column, readable on a phone, light and dark colours, black on white in print."""

LIGHT = """--paper:#fdfdfb;--ink:#1d2124;--faint:#5d666c;--rule:#d9dcd8;--shade:#f3f4f0;
--series-1:#12678a;--series-2:#b8471b;--series-3:#6a4c93;--series-4:#4a7a17;--series-5:#a3347a;--series-6:#7a6000"""
DARK = """--paper:#15181a;--ink:#e4e6e3;--faint:#9aa3a8;--rule:#373d41;--shade:#1f2427;
--series-1:#5db3d8;--series-2:#f08a5d;--series-3:#b79ce0;--series-4:#9bc75f;--series-5:#e68cc3;--series-6:#d3b84a"""

STYLE = f"""
:root{{color-scheme:light dark;{LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{DARK}}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%;text-size-adjust:100%}}
body{{margin:0;background:var(--paper);color:var(--ink);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}}
main{{max-width:66rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}}
h1{{font-size:1.9rem;line-height:1.2;font-weight:650;letter-spacing:-.012em;margin:0;overflow-wrap:anywhere}}
h2{{font-size:1.2rem;line-height:1.3;font-weight:650;margin:3rem 0 .8rem;padding-top:.8rem;
border-top:1px solid var(--rule)}}
h3{{font-size:1rem;font-weight:650;margin:0;overflow-wrap:anywhere}}
p{{max-width:44rem;margin:.5rem 0}}
a{{color:inherit;text-decoration-color:var(--faint);text-underline-offset:.18em}}
.name,.note,figcaption,footer{{color:var(--faint);font-size:.875rem}}
.name{{margin:.35rem 0 0;overflow-wrap:anywhere}}
.verdict{{font-size:1.15rem;line-height:1.5;margin:1.4rem 0 0}}
.warning{{border-left:4px solid currentColor;padding-left:.8rem;margin:1rem 0 0}}
nav{{margin:1.4rem 0 0;font-size:.9rem;line-height:1.9}}
nav a{{margin-right:.75rem;white-space:nowrap}}
.missing{{color:var(--faint);border-left:3px solid var(--rule);padding:.1rem 0 .1rem .8rem}}
.scroll{{position:relative;overflow-x:auto;max-width:100%}}
table{{border-collapse:collapse;font-size:.9rem;line-height:1.4;font-variant-numeric:tabular-nums}}
th,td{{text-align:left;padding:.34rem 1.3rem .34rem 0;vertical-align:top;border-bottom:1px solid var(--rule)}}
th{{font-weight:600;white-space:nowrap}}
thead th{{color:var(--faint);font-weight:500}}
td.number,th.number{{text-align:right;white-space:nowrap}}
td.text{{min-width:11rem;overflow-wrap:anywhere}}
tbody th{{font-weight:500}}
tr.part th{{padding-top:1rem;color:var(--ink);font-weight:650;white-space:normal;max-width:none}}
tr.about td{{color:var(--faint);font-size:.8rem;max-width:34rem;white-space:normal}}
caption{{caption-side:bottom;text-align:left;color:var(--faint);font-size:.8rem;padding:.5rem 0 0;max-width:44rem}}
table.sortable{{margin:1.4rem 0 0}}
table.sortable button{{all:unset;cursor:pointer;font:inherit;color:inherit}}
table.sortable button:hover{{color:var(--ink)}}
th[aria-sort] button span::after{{content:"\\00a0\\2195"}}
th[aria-sort=ascending] button span::after{{content:"\\00a0\\2191"}}
th[aria-sort=descending] button span::after{{content:"\\00a0\\2193"}}
.interval{{display:block;color:var(--faint);font-size:.8rem}}
.unseen{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}}
:focus-visible{{outline:2px solid var(--series-1);outline-offset:2px}}
.atlas{{display:grid;grid-template-columns:minmax(0,1fr) 15rem;gap:1rem 2rem;align-items:start}}
.finder{{order:2}}
.finder label{{display:block;font-weight:600}}
.finder input{{width:100%;font:inherit;color:var(--ink);background:var(--paper);border:1px solid var(--faint);
border-radius:4px;padding:.35rem .5rem;margin:.3rem 0 0}}
.finder ol{{min-height:17rem}}
.finder button{{all:unset;cursor:pointer;overflow-wrap:anywhere;text-decoration:underline;
text-decoration-color:var(--rule);text-underline-offset:.18em}}
.finder button:hover{{text-decoration-color:currentColor}}
.finder button:focus-visible,table.sortable button:focus-visible{{outline:2px solid var(--series-1);outline-offset:2px}}
.finder p{{font-size:.875rem;overflow-wrap:anywhere}}
.map svg{{max-width:none;cursor:crosshair}}
.map path{{stroke-linecap:round}}
.map g text{{font-size:17px;font-weight:600;fill:var(--ink);stroke:var(--paper);stroke-width:4px;paint-order:stroke}}
.map circle{{fill:none;stroke:var(--series-2);stroke-width:2.5px}}
.map .pointed circle{{stroke:var(--ink)}}
.hover{{min-height:1.55em;font-weight:600;overflow-wrap:anywhere}}
details{{margin:1rem 0 0}}
details.part{{margin:0;border-top:1px solid var(--rule)}}
details.part>summary{{padding:.7rem 0;color:var(--ink)}}
details.part>summary h2{{display:inline;border:0;margin:0;padding:0;font-size:1rem}}
summary{{cursor:pointer;color:var(--faint);font-size:.9rem;padding:.2rem 0}}
figure{{margin:1.6rem 0 0;break-inside:avoid}}
figcaption{{max-width:44rem;margin-bottom:.5rem}}
figcaption b{{display:block;color:var(--ink);font-size:1rem;font-weight:600}}
.panels{{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.6rem 1.6rem;align-items:start}}
.many{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr));gap:0 1.6rem}}
.many figcaption b{{font-size:.9rem}}
svg{{display:block;width:100%;max-width:31rem;height:auto;overflow:visible}}
svg *{{stroke-linejoin:round;stroke-linecap:butt}}
svg text{{font-family:inherit!important;font-variant-numeric:tabular-nums}}
.words{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));gap:1.4rem 2.2rem;
margin-top:1.2rem}}
.word{{break-inside:avoid}}
.word .pair{{display:grid;grid-template-columns:1fr 1fr;gap:0 1.2rem;border-top:1px solid var(--rule);
margin-top:.3rem;padding-top:.4rem}}
ol{{list-style:none;margin:0;padding:0;font-size:.9rem}}
.word .pair>div>span{{color:var(--faint);font-size:.8rem}}
li{{display:flex;justify-content:space-between;gap:.6rem;border:0}}
li bdi{{overflow-wrap:anywhere;min-width:0}}
li span{{color:var(--faint);font-variant-numeric:tabular-nums}}
pre{{background:var(--shade);margin:.6rem 0;padding:.9rem 1rem;overflow-x:auto;border-radius:4px;
font:.82rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;tab-size:2}}
pre.wrap{{white-space:pre-wrap;overflow-wrap:anywhere}}
.verdict p{{margin:.4rem 0}}
.verdict p:first-child{{margin-top:0}}
ul.notes{{margin:.6rem 0 1rem;padding-left:1.1rem;max-width:46rem}}
ul.notes li{{display:list-item;margin:.3rem 0}}
ul.legend{{list-style:none;margin:.2rem 0 .6rem;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;
font-size:.875rem}}
ul.legend li{{display:flex;align-items:center;gap:.45rem;min-width:0;justify-content:flex-start}}
ul.legend bdi{{overflow-wrap:anywhere}}
svg.swatch{{width:2.1rem;flex:none;display:block}}
tr.part th span{{position:sticky;left:0}}
.strategies{{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.6rem,1fr));gap:1rem 1.3rem;
margin:.3rem 0 1.6rem;border-top:1px solid var(--rule);padding-top:.5rem}}
.strategies h4{{font-size:.875rem;font-weight:600;margin:0 0 .2rem;overflow-wrap:anywhere}}
.strategies div>span{{color:var(--faint);font-size:.8rem}}
.strategies div{{break-inside:avoid;min-width:0}}
.strategies ol+span{{display:block;margin-top:.4rem}}
.scroll+.scroll,.many+.note,.scroll+.note,.scroll+p{{margin-top:1.2rem}}
.scroll+h3{{margin-top:1.8rem}}
thead th{{vertical-align:bottom}}
thead th.number{{white-space:normal}}
footer{{margin-top:3rem;border-top:1px solid var(--rule);padding-top:.8rem}}
@media (max-width:40rem){{
main{{padding:1.5rem 1rem 3rem}}
.atlas{{grid-template-columns:minmax(0,1fr)}}
.finder{{order:0}}
.finder ol{{min-height:0;columns:2;column-gap:1.5rem}}
.map .more{{display:none}}
.map text{{font-size:30px}}
.map g text{{font-size:34px}}
h1{{font-size:1.5rem}}
h2{{margin-top:2.4rem}}
.verdict{{font-size:1.05rem}}
table{{font-size:.8rem}}
th,td{{padding-right:.6rem}}
.panels{{grid-template-columns:minmax(0,1fr)}}
.strategies{{grid-template-columns:repeat(2,minmax(0,1fr))}}
td.text{{min-width:12rem}}
tbody th{{white-space:normal;overflow-wrap:anywhere;min-width:4.6rem;max-width:6rem}}
}}
@media print{{
:root{{color-scheme:light;{LIGHT};--paper:#fff}}
body{{font-size:10pt}}
main{{max-width:none;padding:0}}
nav{{display:none}}
.scroll{{overflow:visible}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;overflow:visible;border:1px solid var(--rule)}}
h2,h3,thead,figcaption{{break-after:avoid}}
tr,li{{break-inside:avoid}}
details::details-content{{content-visibility:visible;block-size:auto}}
table{{font-size:8pt}}.note{{break-after:avoid}}.scroll+.note{{break-before:avoid;break-after:auto}}
}}
"""
