"""fastText itself: its buckets of n-grams."""

from pathlib import Path

import pytest

from embtrain.data.text.ngrams import Ngrams

pytestmark = pytest.mark.slow

WORDS = ["cat", "of", "a", "</s>", "Straße", "naïve", "e\u0301te", "北京大学", "ひらがな", "👍🏽", "👩‍🚀ok", "x<y>z",
         "ß", "\u0800\uffff", "\U0010ffff", "Донаудампфшиффарт" * 3]
TEXT = "the cat sat on the mat\nder Käse läuft zur Straße\n北京大学 在 北京 👍🏽\n" * 20


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fasttext") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize(("min_n", "max_n", "buckets"), [(3, 6, 2_000_000), (1, 1, 7), (1, 3, 1000), (2, 20, 2**20)])
def test_buckets(text: Path, min_n: int, max_n: int, buckets: int) -> None:
    import fasttext

    model = fasttext.train_unsupervised(str(text), minn=min_n, maxn=max_n, bucket=buckets, dim=1, minCount=1, epoch=1,
                                        lr=1e-4, thread=1, verbose=0)
    n_words, words = len(model.words), WORDS + model.words
    start, row = Ngrams(min_n, max_n, buckets).rows(words)
    for i, word in enumerate(words):
        expected = [int(place) - n_words for place in model.get_subwords(word)[1] if place >= n_words]
        assert row[start[i]:start[i + 1]].tolist() == expected, word
