"""Names that earlier versions used. If a user gives one, the error shows the present name (`config.nearest`)."""

from __future__ import annotations

from collections.abc import Collection

PAPERS = (
    ("001-msmarco", "simlm-msmarco"),
    ("001-nq", "simlm-nq"),
    ("002-msmarco", "bow-msmarco"),
    ("002-nq", "bow-nq"),
    ("002-wikipedia", "bow-wikipedia"),
    ("003-msmarco", "cdmae-msmarco"),
    ("004-reqa-squad", "chang-reqa-squad"),
    ("004-wikipedia", "chang-wikipedia"),
    ("001-figure3", "simlm-figure3"),
    ("001-table1", "simlm-table1"),
    ("001-table5", "simlm-table5"),
    ("001-table7", "simlm-table7"),
    ("001-table8", "simlm-table8"),
    ("001-table9", "simlm-table9"),
    ("001-table10", "simlm-table10"),
    ("001-table12", "simlm-table12"),
    ("002-table1", "bow-table1"),
    ("002-table2", "bow-table2"),
    ("002-table3", "bow-table3"),
    ("002-table3-qa", "bow-table3-qa"),
    ("002-table5", "bow-table5"),
    ("002-table5-qa", "bow-table5-qa"),
    ("002-table6", "bow-table6"),
    ("003-figure4", "cdmae-figure4"),
    ("003-table2", "cdmae-table2"),
    ("003-table4", "cdmae-table4"),
    ("003-table5", "cdmae-table5"),
    ("004-table3", "chang-table3"),
    ("004-table4", "chang-table4"),
    ("004-table5", "chang-table5"),
)
"""Recipes and sweeps."""

STEPS = (("lexical", "bm25"), ("score", "score-pairs"), ("judge", "compare-release"))

SECTIONS = (("lexical", "bm25"), ("score", "score_pairs"), ("judge", "compare_release"))
"""Sections of `params.yaml`, which are uses of steps in the graph, and sections of the files of single steps."""

SETTINGS = (
    ("warmup", "warmup_ratio"),
    ("clip", "max_grad_norm"),
    ("heldout_every", "eval_steps"),
    ("heldout_share", "eval_share"),
    ("heldout_limit", "max_eval_samples"),
    ("accumulate", "gradient_accumulation_steps"),
    ("texts_at_once", "mini_batch_size"),
    ("pairs_at_once", "mini_batch_size"),
    ("stop_on", "metric_for_best_model"),
    ("encoder_mask", "encoder_mlm_probability"),
    ("decoder_mask", "decoder_mlm_probability"),
    ("matryoshka_widths", "matryoshka_dims"),
    ("skip_best", "range_min"),
    ("search_depth", "range_max"),
    ("width", "truncate_dim"),
    ("hnsw_links", "hnsw_m"),
    ("hnsw_build", "hnsw_ef_construction"),
    ("hnsw_search", "hnsw_ef_search"),
    ("ivf_lists", "ivf_nlist"),
    ("ivf_probes", "ivf_nprobe"),
    ("pq_bytes", "pq_m"),
    ("address", "base_url"),
    ("at_once", "max_concurrency"),
)
"""Settings of steps, now named as in Hugging Face, sentence-transformers, faiss and OpenAI's client."""

FORMER = (*PAPERS, *STEPS, *SECTIONS, *SETTINGS)
"""Every former name with its present one. A name that had several meanings has a row for each."""


def present_name(former: str, valid: Collection[str]) -> str:
    """The name among `valid` that was formerly called `former`, or "" if there is none.

    `former` may also be a flag (`--clip`), a use with an output (`lexical/run`), or `section.setting` with either part
    renamed.
    """
    section, _, field = former.partition(".")
    output = former.partition("/")[2]
    for old, new in FORMER:
        present = {
            old: new,
            _flag(old): _flag(new),
            f"{old}/{output}": f"{new}/{output}",
            f"{old}.{field}": f"{new}.{field}",
            f"{section}.{old}": f"{section}.{new}",
        }
        if present.get(former) in valid:
            return present[former]
    return ""


def present_step(name: str) -> str:
    """The present name of a step that a manifest, perhaps of an earlier version, names."""
    return dict(STEPS).get(name, name)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
