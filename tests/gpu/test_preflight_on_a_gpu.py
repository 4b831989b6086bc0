"""`stillhouse preflight` on a machine with a GPU: it finds and names it, and NCCL can sum there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stillhouse import cli
from stillhouse.kubeflow.collective import failure_together
from stillhouse.kubeflow.preflight import take_readings


def test_a_machine_with_a_gpu_is_suitable(
    tmp_path: Path, device: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = 1 if device.type == "cuda" else 0
    code = cli.main(["preflight", "--gpus", str(wanted), "--work", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said.err
    name = torch.cuda.get_device_name(0) if wanted else "no GPU"
    assert name in said.out and f"free in {tmp_path}" in said.out


def test_the_readings_are_those_of_pytorch(tmp_path: Path, device: torch.device) -> None:
    found = take_readings(tmp_path)
    assert found.cuda_build == (torch.version.cuda or "") and not found.failure
    if device.type == "cuda":
        assert found.gpus == torch.cuda.device_count() == len(found.names)
        assert found.driver and found.nccl.split(".")[0] == str(torch.cuda.nccl.version()[0])


def test_a_collective_of_one_process_succeeds(device: torch.device) -> None:
    """The process loads PyTorch, opens the GPU and sums over NCCL."""
    assert failure_together(1, "nccl" if device.type == "cuda" else "gloo") == ""
