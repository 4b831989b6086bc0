"""What pods may do: the restricted Pod Security level, accounts with few rights, and network access by policy."""

from __future__ import annotations

import pytest
from rendered_overlays import EVERY_OVERLAY, OVERLAYS, Resource, pod_specs, rendered

ALLOWED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"}
ALLOWED_VOLUMES |= {"persistentVolumeClaim", "projected", "secret"}
"""The volumes of the restricted level (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""
OWN_NAMESPACE = ("gpu", "single-node", "single-node-pipelines")


def violations(spec: Resource) -> list[str]:
    """Return everything in a pod's spec that the restricted level forbids."""
    found = []
    pod = spec.get("securityContext", {})
    for volume in spec.get("volumes", []):
        [kind] = set(volume) - {"name"}
        if kind not in ALLOWED_VOLUMES:
            found.append(f"volume {volume['name']} is a {kind}")
    found += [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        own = container.get("securityContext", {})
        both = pod | own
        if not both.get("runAsNonRoot") or both.get("runAsUser", 1) == 0:
            found.append("may be root")
        if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            found.append("has no seccomp profile")
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            found.append("may gain privileges")
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            found.append("keeps capabilities")
    return found


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_pods_keep_to_the_restricted_level(overlay: str) -> None:
    for name, spec in pod_specs(rendered(overlay)).items():
        assert violations(spec) == [], name


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_pods_have_limits_a_numeric_user_and_a_root_that_is_read_only(overlay: str) -> None:
    for name, spec in pod_specs(rendered(overlay)).items():
        assert spec["automountServiceAccountToken"] is False, name
        for container in spec["containers"]:
            assert (spec.get("securityContext", {}) | container["securityContext"])["runAsUser"] > 0, name
            assert container["securityContext"]["readOnlyRootFilesystem"], name
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_accounts_have_few_rights(overlay: str) -> None:
    """Roles have no wildcards, read only secrets that they name, and give no rights beyond the namespace."""
    resources = rendered(overlay)
    assert not {"ClusterRole", "ClusterRoleBinding"} & {one["kind"] for one in resources}
    for role in (one for one in resources if one["kind"] == "Role"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], role["metadata"]["name"]
            assert not set(rule["resources"]) & {"pods/exec", "serviceaccounts/token", "roles", "rolebindings"}
            if "secrets" in rule["resources"]:
                assert rule["resourceNames"], role["metadata"]["name"]
                assert rule["verbs"] == ["get"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_roles_are_bound_to_accounts_that_are_there(overlay: str) -> None:
    resources = rendered(overlay)
    there = {(one["kind"], one["metadata"]["name"]) for one in resources}
    bound = set()
    [namespace] = {one["metadata"]["namespace"] for one in resources if one["kind"] == "ServiceAccount"}
    for binding in (one for one in resources if one["kind"] == "RoleBinding"):
        role = binding["roleRef"]
        if role["kind"] == "Role":
            bound.add(role["name"])
        else:
            assert role["name"] == "kubeflow-pipelines-edit", "Kubeflow Pipelines has it, and no other"
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["name"]) in there
            assert subject["namespace"] == binding["metadata"]["namespace"] == namespace
    assert bound == {name for kind, name in there if kind == "Role"}


@pytest.mark.parametrize("overlay", OWN_NAMESPACE)
def test_only_connections_named_by_a_policy_are_allowed(overlay: str) -> None:
    policies = [one for one in rendered(overlay) if one["kind"] == "NetworkPolicy"]
    [closed] = [one for one in policies if not {"ingress", "egress"} & one["spec"].keys()]
    assert closed["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in policies:
        for rule in policy["spec"].get("ingress", []):
            assert rule.get("from"), f"{policy['metadata']['name']} lets everybody in"
        for rule in policy["spec"].get("egress", []):
            assert rule.get("to") or rule.get("ports"), f"{policy['metadata']['name']} lets everything out"
