"""The translator: word by word equals all at once, padding is masked, a table stays fixed, searches match loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from embtrain.common.types import ProblemSpec, Query
from embtrain.data.parallel import corpus as parallel
from embtrain.data.parallel.batches import TranslationBatch, make_batch, pad_sources
from embtrain.data.parallel.corpus import END, RARE, ParallelConfig, ParallelCorpus
from embtrain.data.parallel.synthetic import GrammarConfig
from embtrain.evaluate.translation import decoding
from embtrain.evaluate.translation.bf16_search import SHORTLIST_SIZE, Bf16Search
from embtrain.evaluate.translation.decoding import Decoded
from embtrain.models.nmt.model import Nmt, NmtConfig
from embtrain.models.output_table import OutputTableConfig

FROZEN = OutputTableConfig(kind="sphere", frozen=True)
KINDS = {"recurrent": {}, "feeding": {"input_feeding": True}, "transformer": {"net": "transformer", "heads": 2}}


@pytest.fixture(scope="module")
def text() -> ParallelCorpus:
    return parallel.load_synthetic(
        GrammarConfig(train=80, valid=5, test=8), ParallelConfig(min_count=1), None, "grammar"
    )


def model(text: ParallelCorpus, **keys: object) -> Nmt:
    v = len(text.target.vocabulary)
    config = NmtConfig(**{"dim": 6, "hidden": 8, "embed": 5, "dropout": 0.0, **keys})  # type: ignore[arg-type]
    return Nmt(config, ProblemSpec(v, torch.from_numpy(text.target.vocabulary.counts).double(), n_contexts=v + 1, dim=6,
                             n_features=len(text.source.vocabulary), words=text.target.vocabulary.words))


def batch_of(text: ParallelCorpus, n: int = 8) -> TranslationBatch:
    return make_batch(text, np.array(text.part("test")[:n]))


# --- the nets -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_word_by_word_equals_all_at_once(text: ParallelCorpus, kind: str) -> None:
    translator, batch = model(text, **KINDS[kind]).eval(), batch_of(text)
    whole = translator.encode(batch)
    memory = translator.encode_source(batch.source, batch.length)
    state, steps = memory.start, []
    for t in range(batch.prev_tokens.shape[1]):
        query, attention, state = translator.decode_step(memory, batch.prev_tokens[:, t], state)
        assert torch.allclose(attention.sum(1), torch.ones(len(attention)))
        assert not attention[memory.is_padding].any()
        steps.append(query.vector)
    result = torch.stack(steps, 1).flatten(0, 1)[batch.position]
    torch.testing.assert_close(result, whole.vector, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_sentence_is_encoded_independently_of_its_batch(text: ParallelCorpus, kind: str) -> None:
    translator, batch = model(text, **KINDS[kind]).eval(), batch_of(text)
    assert len(set(batch.length.tolist())) > 2
    whole = translator.encode(batch).vector
    for i in range(len(batch.source)):
        alone = translator.encode(make_batch(text, np.array(text.part("test")[i:i + 1]))).vector
        torch.testing.assert_close(alone, whole[batch.window == i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_target_word_sees_only_the_words_before_it(text: ParallelCorpus, kind: str) -> None:
    translator, batch = model(text, **KINDS[kind]).eval(), batch_of(text, 3)
    was, later = translator.encode(batch).vector, batch.prev_tokens.clone()
    later[:, 4] = (later[:, 4] + 1) % translator.problem.n_candidates
    now = translator.encode(replace(batch, prev_tokens=later)).vector
    column = batch.position % batch.prev_tokens.shape[1]
    changed = (was != now).any(1)
    assert not changed[column < 4].any() and changed[column == 4].all()


def test_source_is_encoded_in_both_directions(text: ParallelCorpus) -> None:
    translator, batch = model(text).eval(), batch_of(text, 1)
    memory = translator.encode_source(batch.source, batch.length)
    for at, half in ((0, slice(4, 8)), (-1, slice(0, 4))):  # the last word reaches the first state, and the reverse
        other = batch.source.clone()
        other[0, -2 if at == 0 else 0] = RARE
        assert not torch.equal(translator.encode_source(other, batch.length).values[0, at, half],
                               memory.values[0, at, half])


# --- the model ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("targets", [FROZEN, OutputTableConfig(kind="sphere"), OutputTableConfig()])
def test_scores_match_the_formula(text: ParallelCorpus, similarity: str, targets: OutputTableConfig) -> None:
    translator, batch = model(text, similarity=similarity, tau=3.0, output_table=targets).eval(), batch_of(text, 2)
    query = translator.encode(batch)
    everyone = torch.arange(translator.problem.n_candidates).unsqueeze(0)
    e, v = query.vector, translator.table()
    expected = e @ v.T if similarity == "dot" else 3.0 * nn.functional.cosine_similarity(e[:, None], v[None], dim=2)
    for ids in (everyone, everyone[:, :4], everyone[:, :4].repeat(len(query), 1)):
        torch.testing.assert_close(translator.score(query, ids), expected[:, :ids.shape[1]])
    torch.testing.assert_close(translator.score(query, v[:4].expand(len(query), -1, -1)), expected[:, :4])
    assert (translator.has_frozen_table, translator.geometry) == (targets.frozen, similarity)


def test_rows_for_answers_are_chosen_before_the_head(text: ParallelCorpus) -> None:
    translator, batch, seen = model(text), batch_of(text), []
    translator.head.register_forward_hook(lambda _, inputs, out: seen.append((inputs[0].shape[0], out.shape[0])))
    query = translator.train().encode(batch)
    assert seen == [(len(batch), len(batch))] and len(batch) < batch.prev_tokens.numel()
    assert query.vector.shape == (len(batch), 6) and query.vector.requires_grad
    assert torch.equal(query.windows(), batch.window) and int(query.context[0]) == translator.problem.n_candidates
    with pytest.raises(TypeError):
        translator.encode(batch.rows(slice(0, 2)))


@pytest.mark.parametrize("tied", [True, False])
def test_table_read_through_a_map_is_unchanged(text: ParallelCorpus, tied: bool) -> None:
    translator, batch = model(text, tied=tied, output_table=FROZEN, similarity="cosine").train(), batch_of(text)
    table = translator.table().clone()
    translator.sparse = False                                    # as the trainer does for Adam
    before = {name: p.detach().clone() for name, p in translator.named_parameters()}
    optimizer = torch.optim.Adam(translator.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (-translator.score(translator.encode(batch), batch.target[:, None])).mean().backward()
        optimizer.step()
        translator.after_update(batch)
    assert torch.equal(translator.table(), table) and translator.has_frozen_table
    torch.testing.assert_close(table.norm(dim=1), torch.ones(len(table)))
    assert all(not torch.equal(p, before[name]) for name, p in translator.named_parameters()), "each part learns"
    assert ("read_w.weight" in before) == tied and "v" not in before
    free = model(text, tied=tied, output_table=OutputTableConfig(kind="sphere"))
    assert "v" in dict(free.named_parameters())


def test_dropout_follows_seed_and_updates_and_is_off_in_evaluation(text: ParallelCorpus) -> None:
    translator, batch = model(text, dropout=0.5), batch_of(text)
    one, again = (translator.train().encode(batch).vector for _ in range(2))
    translator.after_update(batch)
    later = translator.encode(batch).vector
    assert torch.equal(one, again) and not torch.equal(one, later)
    kept = model(text, dropout=0.5)
    kept.load_state_dict(translator.state_dict())
    assert torch.equal(kept.train().encode(batch).vector, later)
    assert torch.equal(translator.eval().encode(batch).vector, translator.encode(batch).vector)


def test_no_global_random_numbers_are_used(text: ParallelCorpus) -> None:
    state = torch.get_rng_state()
    a, b = (model(text, dropout=0.3, **KINDS["transformer"]) for _ in range(2))
    a.train().encode(batch_of(text))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


# --- searches -------------------------------------------------------------------------------------------------------

def logits(translator: Nmt) -> decoding.Logits:
    everyone = torch.arange(translator.problem.n_candidates).unsqueeze(0)
    return lambda query: translator.score(query, everyone)


def by_hand(translator: Nmt, source: Tensor, length: Tensor, words: list[int]) -> Tensor:
    """Return the scores (V,) of the word after some words, from the beginning."""
    memory = translator.encode_source(source, length)
    state = memory.start
    for word in [translator.problem.n_candidates, *words]:
        query, _, state = translator.decode_step(memory, torch.tensor([word]), state)
    return logits(translator)(query)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unknown", [False, True])
@torch.no_grad()
def test_greedy_takes_the_best_word_until_the_end(text: ParallelCorpus, kind: str, unknown: bool) -> None:
    translator = model(text, **KINDS[kind])
    source, length = pad_sources([text.source.sentence(i) for i in text.part("test")])
    first = by_hand(translator.eval(), source[:1, :length[0]], length[:1], []) @ translator.v.pinverse().T
    first = nn.functional.normalize(first, dim=0)
    translator.v[RARE], translator.v[END] = 1.5 * first, 0.99 * first  # often the best where it may be; sometimes not
    result = decoding.translate(translator, logits(translator), source, length, unknown=unknown,
                                max_words=length // 2 + 3)
    ends = 0
    for i, one in enumerate(result):
        words: list[int] = []
        while len(words) < int(length[i]) // 2 + 3:
            z = by_hand(translator.eval(), source[i:i + 1, :length[i]], length[i:i + 1], words)
            z[RARE] = z[RARE] if unknown else -torch.inf
            if int(z.argmax()) == END:
                ends += 1
                break
            words.append(int(z.argmax()))
        assert one.ids == words and len(one.attended) == len(words)
        assert all(0 <= at < int(length[i]) - 1 for at in one.attended)
    assert (ends > 0 or unknown) and (RARE in [b for one in result for b in one.ids]) == unknown


@pytest.mark.parametrize("keys", [{"output_table": FROZEN}, {}, {"similarity": "cosine", "tau": 9.0},
                                  KINDS["transformer"]])
@pytest.mark.parametrize("unknown", [False, True])
@torch.no_grad()
def test_rounded_table_finds_the_same_words(text: ParallelCorpus, keys: dict[str, object], unknown: bool) -> None:
    translator = model(text, **keys).eval()
    assert translator.problem.n_candidates > 5 * SHORTLIST_SIZE  # a word outside the shortlist cannot be chosen
    source, length = pad_sources([text.source.sentence(i) for i in text.part("test")])
    one, other = (decoding.translate(translator, logits(translator), source, length, unknown=unknown, best=best)
                  for best in (None, Bf16Search(translator)))
    assert one == other and any(written.ids for written in one)


@torch.no_grad()
def test_ties_in_bfloat16_are_decided_in_float32(text: ParallelCorpus) -> None:
    for similarity in ("dot", "cosine"):
        translator, none = model(text, similarity=similarity).eval(), torch.zeros(1, dtype=torch.int64)
        translator.v.copy_(nn.functional.normalize(translator.v, dim=1))
        e = nn.functional.normalize(torch.tensor([[1.0, 2, 3, 4, 5, 6]]), dim=1)
        near = nn.functional.normalize(e[0] + torch.tensor([4e-3, 0, 0, 0, 0, 0]), dim=0)
        for expected_word, of_8, of_9 in ((9, near, e[0]), (8, e[0], near), (8, near, near)):  # of equal ones the first
            translator.v[8], translator.v[9], translator.v[RARE] = of_8, of_9, e[0] * 1.5
            rounded, query = Bf16Search(translator), Query(e, none, none, none)
            product = (e.bfloat16() @ rounded.table.T)[0]
            assert float(product[8]) == float(product[9]) == float(product[2:].max())
            for best in (rounded, decoding.nearest(logits(translator))):
                assert int(best(query, False)) == expected_word
                assert int(best(query, True)) == RARE


def beam_by_hand(translator: Nmt, source: Tensor, length: Tensor, m: int, most: int, bare: bool) -> list[int]:
    """Keep of all extensions of m translations the m of the greatest mean step; return the words of the best."""
    kept: list[tuple[list[int], float]] = [([], 0.0)]            # words, sum of their steps
    for _ in range(most):
        grown = []
        for words, total in kept:
            if words and words[-1] == END:
                grown.append((words, total))
                continue
            z = by_hand(translator, source, length, words)
            z[RARE] = -torch.inf
            step = z if bare else z.log_softmax(0)
            grown += [([*words, b], total + float(step[b])) for b in range(len(z)) if b != RARE]
        kept = sorted(grown, key=lambda one: -one[1] / len(one[0]))[:m]
    return [word for word in kept[0][0] if word != END]


@pytest.mark.parametrize("bare", [False, True])
@torch.no_grad()
def test_beam_keeps_the_best_mean_steps(bare: bool) -> None:
    source, length = pad_sources([np.array([2, 3]), np.array([4])])
    ended = found_words = 0
    for seed, m in ((0, 2), (20, 2), (21, 2), (4, 3), (5, 3), (6, 60)):
        small = ProblemSpec(5, torch.ones(5, dtype=torch.float64), n_contexts=6, n_features=6, dim=3, seed=seed)
        translator = Nmt(NmtConfig(dim=3, hidden=4, embed=3, dropout=0, similarity="cosine", tau=8.0,
                                   output_table=OutputTableConfig(kind="sphere", frozen=True)), small).eval()
        translator.head.weight *= 8
        result = decoding.translate(translator, logits(translator), source, length, beam=m,
                                    max_words=torch.tensor([4, 3]),
                                    step=(lambda z, _: z) if bare else None)
        for i, most in enumerate((4, 3)):
            one = beam_by_hand(translator, source[i:i + 1, :length[i]], length[i:i + 1], m, most, bare)
            assert result[i].ids == one, (seed, i)
            ended += len(result[i].ids) < most
            found_words += len(result[i].ids) > 0
    assert ended and found_words


@torch.no_grad()
def test_wide_beam_is_at_least_as_good_as_greedy(text: ParallelCorpus) -> None:
    translator = model(text)
    source, length = pad_sources([text.source.sentence(i) for i in text.part("test")])
    one = decoding.translate(translator, logits(translator), source, length)
    assert decoding.translate(translator, logits(translator), source, length, beam=2) != []
    few = decoding._beam(translator.eval(), logits(translator), source, length, 2 * length + 10, 1, False, None)
    assert [x.ids for x in few] == [x.ids for x in one]          # of one translation each, both are equal
    assert decoding.translate(translator, logits(translator), source[:0], length[:0]) == []


def test_named_steps_are_off_by_default() -> None:
    result, vocabulary, source = Decoded([2, RARE, 3, 3], [0, 1, 0, 0]), ["<eos>", "<unk>", "a", "b"], ["x", "y"]
    assert decoding.words(result, vocabulary, source, False, False) == ["a", "<unk>", "b", "b"]
    assert decoding.words(result, vocabulary, source, True, False) == ["a", "y", "b", "b"]
    assert decoding.words(result, vocabulary, source, False, True) == ["a", "<unk>", "b"]


def test_attention_over_a_source_of_one_word_stays_on_it() -> None:
    attention = torch.tensor([[0.2, 0.8], [0.6, 0.4]])
    assert decoding._attended_word(attention, torch.tensor([2, 2])).tolist() == [0, 0]
    assert decoding._attended_word(torch.tensor([[1.0]]), torch.tensor([1])).tolist() == [0]


def test_word_by_word_queries_have_no_target(text: ParallelCorpus) -> None:
    translator, batch = model(text).eval(), batch_of(text, 2)
    memory = translator.encode_source(batch.source, batch.length)
    query, _, _ = translator.decode_step(memory, batch.prev_tokens[:, 0], memory.start)
    assert isinstance(query, Query) and len(query) == 2 and query.context.tolist() == batch.prev_tokens[:, 0].tolist()
