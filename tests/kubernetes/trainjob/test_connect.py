"""A step connects to the cluster of its pod with the pod's token."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest
from kubernetes.config import incluster_config

from stillhouse.errors import InputError
from stillhouse.kubernetes.cluster.api import connect


def test_a_pod_talks_to_its_own_cluster_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("of this pod")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    settings = connect("several nodes need").configuration
    assert settings.host == "https://10.0.0.1:443" and settings.verify_ssl
    assert settings.get_api_key_with_prefix("authorization") == "bearer of this pod"


def test_without_a_cluster_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(InputError, match="several nodes need a Kubernetes cluster"):
        connect("several nodes need")
