"""Settings of encoding a corpus and of its index. No torch here: step modules read them to declare their flags."""

from dataclasses import dataclass, fields

from stillhouse.core.config import setting
from stillhouse.core.errors import InputError
from stillhouse.models.settings import InferenceConfig


@dataclass(frozen=True, kw_only=True)
class EncodingConfig(InferenceConfig):
    """How passages are encoded, and whether later runs may reuse their vectors."""

    cache_gib: float = setting(
        10.0,
        "cache passage vectors in the work area for later runs of the same model, in at most this many GiB for all "
        "models together; 0 = no cache",
        minimum=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """Which kind of index to build and how; settings for one kind alone say so."""

    kind: str = setting(
        "flat",
        "flat = exact search; hnsw = a graph, fast and large; ivfpq = clusters of vectors in few bytes; ivfsq8 = "
        "clusters of vectors at one byte per dimension; sq8 = one byte per dimension, all compared; binary_rescored = "
        "one bit per dimension, all compared; with ivfpq and binary_rescored, the best are rescored at one byte per "
        "dimension",
        choices=("flat", "hnsw", "ivfpq", "ivfsq8", "sq8", "binary_rescored"),
    )
    truncate_dim: int | None = setting(
        None, "keep only the first dimensions, this many (for a Matryoshka model); null = all", minimum=1
    )
    hnsw_m: int = setting(32, "hnsw only: links per passage in the graph", minimum=2)
    hnsw_ef_construction: int = setting(128, "hnsw only: candidates examined when a passage is linked", minimum=1)
    hnsw_ef_search: int = setting(
        256, "hnsw only: candidates kept during a search, at least the number of requested passages", minimum=1
    )
    ivf_nlist: int | None = setting(
        None,
        "ivfpq and ivfsq8 only: clusters; null = four times the square root of the passages, with at least 39 of "
        "them each",
        minimum=1,
    )
    ivf_nprobe: int = setting(32, "ivfpq and ivfsq8 only: clusters that a query searches", minimum=1)
    pq_m: int | None = setting(
        None,
        "ivfpq only: bytes of a vector in its cluster, a divisor of its width; null = one per four dimensions",
        minimum=1,
    )
    rescore_multiplier: int = setting(
        32,
        "ivfpq and binary_rescored only: passages rescored for each one requested; 0 = ivfpq without these bytes, in a "
        "fifth of the size with a lower recall, also behind filters",
        minimum=0,
    )

    def __post_init__(self) -> None:
        own_kinds = {
            "hnsw": ("hnsw",),
            "ivf": ("ivfpq", "ivfsq8"),
            "pq": ("ivfpq",),
            "rescore": ("ivfpq", "binary_rescored"),
        }
        if self.kind == "binary_rescored" and not self.rescore_multiplier:
            raise InputError("rescore_multiplier must be at least 1 for kind binary_rescored, which ranks by it")
        for field in fields(IndexConfig):
            kinds = own_kinds.get(field.name.split("_")[0], (self.kind,))
            if self.kind not in kinds and getattr(self, field.name) != field.default:
                names = " and ".join(kinds)
                raise InputError(f"{field.name} is only for kind {names}, but kind is {self.kind}; leave it out")
