"""The readings of `preflight` on a machine that meets every requirement."""

from stillhouse.kubeflow.preflight import Readings

GOOD = Readings(
    shared_memory_gib=16.0,
    free_gib=200.0,
    writable=True,
    work="/volume",
    cuda_build="12.8",
    driver="570.86.15",
    gpus=2,
    names=("A", "A"),
    nccl="2.27.3",
)
