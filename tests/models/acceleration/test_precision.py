"""Which precision is faster, given the processor's maker and its reported features."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stillhouse.models.acceleration.device import AMD, computed_in, has_bf16, own_vendor

CPU = torch.device("cpu")
INTEL = "GenuineIntel"


@pytest.mark.parametrize(
    ("vendor", "capabilities", "fast"),
    [
        (AMD, {"avx512_bf16": True, "amx_bf16": False}, True),
        (AMD, {"avx512_bf16": False, "avx2": True}, False),
        (INTEL, {"avx512_bf16": True, "amx_bf16": False}, False),
        (INTEL, {"avx512_bf16": True, "amx_bf16": True}, True),
        ("", {"avx512_bf16": True}, False),
        ("", {"bf16": True}, True),  # Arm
    ],
)
def test_bf16_is_used_on_processors_where_it_is_faster(
    vendor: str, capabilities: dict[str, bool], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr("stillhouse.models.acceleration.device.own_vendor", lambda: vendor)
    assert has_bf16(CPU) is has_bf16(CPU, vendor or "unknown") is fast
    assert computed_in("auto", CPU) is (torch.bfloat16 if fast else torch.float32)
    assert computed_in("bf16", CPU) is torch.bfloat16 and computed_in("fp32", CPU) is torch.float32


@pytest.mark.parametrize(
    ("logged", "vendor"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: EPYC\n\nvendor_id\t: another\n", AMD),
        ("processor\t: 0\nvendor_id\t: GenuineIntel\n", "GenuineIntel"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", ""),
    ],
)
def test_the_cpu_vendor_is_read_from_cpuinfo(logged: str, vendor: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(logged)
    assert own_vendor(tmp_path / "cpuinfo") == vendor
