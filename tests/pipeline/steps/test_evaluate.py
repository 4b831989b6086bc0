from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from passage_corpora import write_passages
from shown_page import Page

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.curves import HELDOUT_LOSS, CurveRow, write_curves
from stillhouse.core.errors import InputError
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.evaluation.runs import write_run
from stillhouse.evaluation.systems import about_training, short_name
from stillhouse.pipeline.steps.evaluate import STEP, Config
from stillhouse.pipeline.steps.execute import execute

PASSAGES = [f"p{i}" for i in range(12)]
QUERIES = 20
SYSTEMS = ["bm25", "zero_shot", "retriever_1_unpretrained", "retriever_1", "reranked", "our-own_2", "distilled"]
TRAININGS = ["pretraining", "our-own_2", "reranker"]
QUICK = Config(bootstrap_samples=200, randomisation_samples=200)


def make_corpus(folder: Path, splits: tuple[str, ...] = ("dev", "test")) -> Path:
    ids = [f"{split}{i}" for split in splits for i in range(QUERIES)]
    split_of = [split for split in splits for _ in range(QUERIES)]
    queries = {"query_id": ids, "text": [f"what is <script>alert({i})</script> & co?" for i in ids], "split": split_of}
    gold = [PASSAGES[i % 12] for i in range(len(ids))]
    qrels = {"query_id": ids, "passage_id": gold, "relevance": [1] * len(ids), "split": split_of}
    texts, titles = (
        [f"{before}{i}{after}" for i in PASSAGES] for before, after in (("Text of ", "."), ("<b>Title ", "</b>"))
    )
    tables = {"queries": queries, "qrels": qrels}
    return write_passages(folder, texts, tables, title=titles, article_id=["a"] * 12, position=list(range(12)))


def make_run(folder: Path, system: str, right: int, depth: int = 12) -> Path:
    """A run that ranks the gold passage first for the first `right` queries of each split, and second for the rest."""
    with whole_folder(folder) as staging:
        for s, split in enumerate(("dev", "test")):
            scores = np.tile(-np.arange(12, dtype=np.float32), (QUERIES, 1))
            gold = (np.arange(QUERIES) + s * QUERIES) % 12
            order = np.stack([np.roll(np.arange(12), -g) for g in gold]).astype(np.int32)
            order[right:, [0, 1]] = order[right:, [1, 0]]
            ids = [f"{split}{i}" for i in range(QUERIES)]
            write_run(staging / f"{split}.trec", ids, PassageIds(PASSAGES), order[:, :depth], scores[:, :depth], system)
        write_manifest(staging, "retrieve", {}, {}, {})
    return folder


def make_curves(folder: Path, ranking: Sequence[float] = (), signal: str = "dev_nDCG@10") -> Path:
    """Write curves of three measurements. If `ranking` is given, it is the signal that chooses the checkpoint."""
    with whole_folder(folder) as staging:
        losses = ((0, 3.25, 3.25), (10, 2.0, 2.125), (20, 1.0, 1.5))
        signals = [{signal: value} for value in ranking] or [{}] * len(losses)
        rows = [CurveRow(*loss, signals=own) for loss, own in zip(losses, signals)]
        write_curves(staging, rows, signal if ranking else HELDOUT_LOSS)
        write_manifest(staging, "train-retriever", {}, {}, {})
    return folder


def whole_input(folder: Path) -> dict[str, Path]:
    inputs = {"corpus": make_corpus(folder / "corpus")}
    inputs |= {f"run/{system}": make_run(folder / system, system, 6 + 2 * i) for i, system in enumerate(SYSTEMS)}
    return inputs | {f"curves/{name}": make_curves(folder / f"{name}_curves") for name in TRAININGS}


def evaluate(inputs: Mapping[str, Path], output: Path, config: Config = QUICK) -> Path:
    execute(STEP, config, inputs, {"evaluation": output})
    return output


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    folder = tmp_path_factory.mktemp("evaluate")
    inputs = whole_input(folder)
    return inputs, evaluate(inputs, folder / "evaluation")


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_figures_are_those_of_the_runs(whole: tuple[dict[str, Path], Path]) -> None:
    metrics = read(whole[1] / "metrics.json")
    assert sorted(metrics) == sorted(SYSTEMS)
    assert read(whole[1] / "manifest.json")["facts"]["order"] == {"run": SYSTEMS, "curves": TRAININGS}
    for i, system in enumerate(SYSTEMS):
        right = 6 + 2 * i
        assert metrics[system]["RR@10"] == pytest.approx((right + (QUERIES - right) / 2) / QUERIES)
        assert metrics[system]["R@50"] == 1.0
    bounds = read(whole[1] / "intervals.json")
    assert all(low <= metrics[s][m] <= high for s in bounds for m, (low, high) in bounds[s].items())
    found = read(whole[1] / "significance.json")
    assert found["distilled"]["bm25"]["RR@10"]["difference"] == pytest.approx(12 * 0.5 / QUERIES)
    assert found["distilled"]["bm25"]["R@50"]["randomisation_p"] == 1.0
    assert found["retriever_1"].keys() == {"retriever_1_unpretrained", "zero_shot"}


def test_per_query_values_average_to_the_figures(whole: tuple[dict[str, Path], Path]) -> None:
    table = pd.read_parquet(whole[1] / "per_query.parquet")
    assert list(table.columns) == ["split", "system", "query_id", "origin", "RR@10", "nDCG@10", "R@50", "R@100"]
    for split, name in (("test", "metrics.json"), ("dev", "dev_metrics.json")):
        means = table[table["split"] == split].groupby("system")[["RR@10", "nDCG@10"]].mean()
        for system, values in read(whole[1] / name).items():
            assert means.loc[system, "nDCG@10"] == pytest.approx(values["nDCG@10"])


def test_the_page_shows_every_system_and_training_and_stands_alone(whole: tuple[dict[str, Path], Path]) -> None:
    text = (whole[1] / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert [a["data-system"] for _, a in page.tags if "data-system" in a] == SYSTEMS
    assert [a["data-training"] for _, a in page.tags if "data-training" in a] == TRAININGS
    assert sum(tag == "svg" for tag, _ in page.tags) == 1 + len(TRAININGS)
    assert all(short_name(name) in page.shown for name in SYSTEMS) and "our-own 2" in page.shown
    assert all(about_training(name).capitalize() in page.shown for name in TRAININGS)
    assert "3.250" in page.shown and "kept 1.500 from step 20" in page.shown
    assert re.search(r'<th scope="row">distilled <span class="versus">vs</span> zero-shot</th>', text)
    references = [v for _, a in page.tags for k, v in a.items() if k in ("src", "href", "xlink:href")]
    assert all(v and v.startswith("#") for v in references)
    assert not re.search(r"url\((?!#)|@import", text)


@pytest.mark.parametrize(
    ("signal", "ranking", "said"),
    [
        ("ict_RR@10", (0.4, 0.9, 0.1), "kept 2.125 from step 10."),
        ("ict_RR@10", (0.9, 0.4, 0.1), "it found nothing better than its start, which was kept."),
        ("dev_RR@10", (0.4, 0.9, 0.1), "RR@10 on dev 0.400 → 0.900, kept from step 10."),
        ("dev_RR@10", (0.4, 0.4, 0.1), "RR@10 on dev 0.400 → 0.400, kept from step 10."),  # its loss is lower
        ("dev_RR@10", (0.9, 0.4, 0.1), "RR@10 on dev 0.900 → 0.900; it found nothing better than its start"),
    ],
)
def test_the_page_names_the_step_that_the_training_kept(
    signal: str, ranking: tuple[float, ...], said: str, tmp_path: Path
) -> None:
    inputs = {"corpus": make_corpus(tmp_path / "corpus"), "run/bm25": make_run(tmp_path / "run", "bm25", 3)}
    inputs["curves/pretraining"] = make_curves(tmp_path / "curves", ranking, signal)
    shown = Page((evaluate(inputs, tmp_path / "out") / "report.html").read_text(encoding="utf-8")).shown
    assert said in " ".join(shown.split())


def test_the_page_escapes_what_the_corpus_says(whole: tuple[dict[str, Path], Path]) -> None:
    text = (whole[1] / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "what is <script>alert(test" in page.shown and "<b>Title p" in page.shown


def test_the_same_inputs_give_the_same_bytes(whole: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    again = evaluate(whole[0], tmp_path / "again")
    names = sorted(path.name for path in whole[1].iterdir())
    assert names == sorted(path.name for path in again.iterdir()) and len(names) == 7
    for name in names:
        assert (whole[1] / name).read_bytes() == (again / name).read_bytes(), name


def test_only_the_given_systems_are_measured_and_an_empty_run_counts_0(tmp_path: Path) -> None:
    inputs = {
        "corpus": make_corpus(tmp_path / "corpus"),
        "run/zero_shot": make_run(tmp_path / "run", "zero_shot", 3, 0),
    }
    output = evaluate(inputs, tmp_path / "out", Config(bootstrap_samples=100, measures=("nDCG@5",), title="A & B"))
    assert read(output / "metrics.json") == {"zero_shot": {"nDCG@5": 0.0}}
    assert read(output / "significance.json") == {}
    text = (output / "report.html").read_text()
    assert "A &amp; B" in text and "found nothing" in text


def test_a_measure_deeper_than_a_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R@100 looks at all 12 passages: the run of depth 5 is cut short, but not the full run or one that ends early."""
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    inputs = {"corpus": make_corpus(tmp_path / "corpus")}
    inputs |= {"run/own": make_run(tmp_path / "a", "a", 3), "run/zero_shot": make_run(tmp_path / "b", "b", 3, depth=5)}
    few = [f"test{q} Q0 {PASSAGES[p]} {p + 1} {-p} c\n" for q in range(QUERIES) for p in range(1 + q % 7)]
    inputs["run/bm25"] = written_run(tmp_path / "c", "".join(few))
    config = Config(measures=("RR@5", "R@10", "R@100", "AP"), bootstrap_samples=100, randomisation_samples=100)
    output = evaluate(inputs, tmp_path / "out", config)
    expected = {"R@10": {"zero_shot": 5}, "R@100": {"zero_shot": 5}}
    assert read(output / "manifest.json")["facts"]["cut_short"] == expected
    assert capsys.readouterr().err.count("is deeper than these runs; missing ranks count as not found") == 2
    assert (output / "report.html").read_text().count("zero-shot ends at rank 5") == 2


def test_bad_input_is_refused_with_its_remedy(tmp_path: Path) -> None:
    corpus, run = make_corpus(tmp_path / "corpus"), make_run(tmp_path / "run", "bm25", 3)
    with pytest.raises(InputError, match="at least one --run NAME=FOLDER"):
        evaluate({"corpus": corpus}, tmp_path / "out")
    with pytest.raises(InputError, match="'Recal@5'"):
        evaluate({"corpus": corpus, "run/bm25": run}, tmp_path / "out", Config(measures=("Recal@5",)))
    with pytest.raises(InputError, match="no judged query in its test split"):
        evaluate({"corpus": make_corpus(tmp_path / "dev", ("dev",)), "run/bm25": run}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def three_passages(folder: Path, **tables: dict[str, list]) -> Path:
    ids = ["q0", "q1", "q2", "q3"]
    queries = {"query_id": ids, "text": [f"which {i}?" for i in ids], "split": ["test"] * 4}
    texts = ["It lies on the Spree.", "In 1871 Berlin was the capital.", "Nothing."]
    return write_passages(folder, texts, {"queries": queries, **tables}, title=["Berlin", "", ""])


def written_run(folder: Path, text: str) -> Path:
    with whole_folder(folder) as staging:
        (staging / "dev.trec").write_text("")
        (staging / "test.trec").write_text(text)
        write_manifest(staging, "retrieve", {}, {}, {})
    return folder


ANSWERS = {
    "query_id": ["q0", "q1", "q1", "q2"],
    "answer": ["berlin", "18[0-9]+", "never", "spree"],
    "kind": ["text", "regex", "text", "text"],
    "split": ["test"] * 4,
}
LINES = "q0 Q0 p0 1 3 s\nq0 Q0 p2 2 2 s\nq0 Q0 p1 3 1 s\nq1 Q0 p1 1 2 s\n"


def test_answers_are_measured_beside_qrels_each_over_its_own_queries(tmp_path: Path) -> None:
    """A title does not count as an answer, but a text or a pattern in a text does.

    q0 has its answer in the third passage, q1 has a pattern, q2 finds nothing, and q3 has only a qrel.
    """
    qrels = {"query_id": ["q0", "q3"], "passage_id": ["p0", "p0"], "relevance": [1, 1], "split": ["test"] * 2}
    corpus = three_passages(tmp_path / "corpus", answers=ANSWERS, qrels=qrels)
    config = Config(measures=("RR@10", "Answer@1", "Answer@3"), bootstrap_samples=100, randomisation_samples=100)
    output = evaluate({"corpus": corpus, "run/bm25": written_run(tmp_path / "run", LINES)}, tmp_path / "out", config)
    expected = {"RR@10": 0.5, "Answer@1": 1 / 3, "Answer@3": 2 / 3}
    assert read(output / "metrics.json")["bm25"] == pytest.approx(expected)
    table = pd.read_parquet(output / "per_query.parquet").set_index("query_id")
    assert table["Answer@3"].isna().to_dict() == {"q0": False, "q1": False, "q2": False, "q3": True}
    assert read(output / "manifest.json")["facts"]["judged"] == {"RR@10": 2, "Answer@1": 3, "Answer@3": 3}
    assert "<b>1 of 2</b><span>queries whose first passage is right" in (output / "report.html").read_text()


@pytest.mark.parametrize(
    ("qrel", "message"),
    [
        (("q0", "p9"), "qrels of .* name passage 'p9', which the corpus does not have"),
        (("q9", "p0"), "qrels of .* name query 'q9', which the corpus does not have"),
    ],
)
def test_qrels_of_another_corpus_are_refused(tmp_path: Path, qrel: tuple[str, str], message: str) -> None:
    qrels = {"query_id": [qrel[0]], "passage_id": [qrel[1]], "relevance": [1], "split": ["test"]}
    corpus = three_passages(tmp_path / "corpus", qrels=qrels)
    with pytest.raises(InputError, match=message):
        evaluate({"corpus": corpus, "run/bm25": written_run(tmp_path / "run", LINES)}, tmp_path / "out")


@pytest.mark.parametrize("names", [("mine", "bm25"), ("bm25", "zero_shot", "retriever_1", "retriever_2")])
def test_the_headline_claims_no_more_than_was_tested(names: tuple[str, ...], tmp_path: Path) -> None:
    """The caller orders the runs, and not every pair is tested; a lead of a few queries proves nothing."""
    right = {"bm25": 4, "retriever_2": 6}
    inputs = {"corpus": make_corpus(tmp_path / "corpus")}
    inputs |= {f"run/{name}": make_run(tmp_path / name, name, right.get(name, 5)) for name in names}
    output = evaluate(inputs, tmp_path / "out", Config(bootstrap_samples=100, randomisation_samples=100))
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "<em>better than</em>" not in page
    assert ("<em>not distinguishable from</em>" if "mine" in names else "<em>above</em>") in page


@pytest.mark.parametrize(
    ("right", "against"),
    [
        ({"bm25": 8, "zero_shot": 6}, "BM25"),
        ({"bm25": 6, "zero_shot": 8}, "the base model"),
        ({"bm25": 6, "zero_shot": 8, "zero_shot_hybrid": 9}, "the base model with BM25"),
        ({"bm25": 10, "zero_shot": 8, "zero_shot_hybrid": 9}, "BM25"),
    ],
)
def test_the_headline_compares_with_the_best_without_training(
    tmp_path: Path, right: dict[str, int], against: str
) -> None:
    inputs = {"corpus": make_corpus(tmp_path / "corpus")}
    inputs |= {f"run/{name}": make_run(tmp_path / name, name, count) for name, count in {**right, "best": 12}.items()}
    page = (evaluate(inputs, tmp_path / "evaluation") / "report.html").read_text()
    headline = re.search(r"<h1>(.*?)</h1>", page, re.DOTALL)
    assert headline and headline[1].endswith(f"</em> {against}")


def test_the_log_says_who_won_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    inputs = {"corpus": make_corpus(tmp_path / "corpus")}
    inputs |= {
        f"run/{name}": make_run(tmp_path / name, name, right) for name, right in (("bm25", 4), ("distilled", 16))
    }
    folder = evaluate(inputs, tmp_path / "evaluation")
    means = json.loads((folder / "metrics.json").read_text())
    interval = json.loads((folder / "significance.json").read_text())["distilled"]["bm25"]["RR@10"]
    distilled, bm25 = (means[name]["RR@10"] for name in ("distilled", "bm25"))
    low, high = interval["low"], interval["high"]
    expected = (
        f"The distilled retriever: RR@10 {distilled:.3f} on 20 test queries, better than BM25 ({bm25:.3f}; "
        f"difference {distilled - bm25:+.3f}, {low:.3f} to {high:.3f})"
    )
    assert expected in capsys.readouterr().err
