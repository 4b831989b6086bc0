"""A Kubernetes API server on loopback with a few kinds. A test can play Trainer and kubelet, and cause failures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from local_server import Asked

NAMESPACE = "stillhouse"
JOBS = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
Plain = dict[str, Any]


class FakeCluster:
    """A fake API server. A test scripts its failures and the events on the cluster.

    `weather` lists the failures of the next requests: a status code, or "reset" to close the connection.

    `script` lists the events: each request for the job calls the next function, which may change `jobs`, `pods` and
    `said`. `calls` records the requests in the terms of a role: verb, group, resource.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Plain] = {}
        self.pods: dict[str, Plain] = {}
        self.said: dict[str, list[tuple[str, str]]] = {}
        self.events: list[Plain] = []
        self.weather: list[int | str] = []
        self.most_looks = 500
        """How many looks at a job are answered. Later ones get 418, which is not retried, so no test runs forever."""
        self.script: list[Callable[[], None]] = []
        self.calls: list[tuple[str, str, str]] = []
        self.refusal: tuple[int, str] | None = None
        """The status and message that refuse to create a job."""
        self.url = ""
        self._looks = self._moments = self._jobs_made = 0

    # What a test makes happen.

    def say(self, pod: str, text: str) -> None:
        """Add a line to a pod's log, a millisecond after the line before."""
        self._moments += 1
        moment = BEGIN + timedelta(milliseconds=self._moments)
        self.said.setdefault(pod, []).append((f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z", text))

    def run_pods(self, job: str, count: int) -> None:
        """Start the pods of all nodes of a job."""
        for number in range(count):
            name = f"{job}-node-0-{number}-abcde"
            labels = {"jobset.sigs.k8s.io/jobset-name": job, "batch.kubernetes.io/job-completion-index": str(number)}
            self.pods[name] = {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}}

    def end_pod(self, name: str) -> None:
        self.pods[name]["status"] = {"phase": "Succeeded"}

    def remove_pod(self, name: str) -> None:
        """Remove a pod with its log, as JobSet does when a job fails."""
        del self.pods[name]
        self.said.pop(name, None)

    def set_condition(self, job: str, kind: str, reason: str = "", words: str = "", holds: bool = True) -> None:
        entry = {"type": kind, "status": str(holds), "reason": reason, "message": words}
        status = self.jobs[job].setdefault("status", {})
        status["conditions"] = [one for one in status.get("conditions", []) if one["type"] != kind] + [entry]

    def only_job(self) -> Plain:
        [job] = self.jobs.values()
        return job

    # What the API does.

    def answer(self, asked: Asked) -> tuple[int, Plain | str] | None:
        if self.weather:
            bad = self.weather.pop(0)
            return None if isinstance(bad, str) else (bad, {"kind": "Status", "message": "bad weather", "code": bad})
        return self._act(asked.method, asked.path, asked.query, asked.content)

    def _act(self, method: str, path: str, query: dict[str, str], body: Plain) -> tuple[int, Plain | str]:
        if path == JOBS and method == "POST":
            return self._create(body)
        if path.startswith(f"{JOBS}/"):
            name = path.removeprefix(f"{JOBS}/")
            return self._delete(name, body) if method == "DELETE" else self._look(name)
        if path == PODS:
            self.calls.append(("list", "", "pods"))
            wanted = dict([query["labelSelector"].split("=", 1)])
            found = [one for one in self.pods.values() if wanted.items() <= one["metadata"].get("labels", {}).items()]
            return 200, {"kind": "PodList", "items": found}
        if path.startswith(PODS) and path.endswith("/log"):
            return self._log(path.split("/")[-2], query)
        if path.startswith(f"{PODS}/"):
            self.calls.append(("get", "", "pods"))
            return self._there(self.pods.get(path.removeprefix(f"{PODS}/")))
        if path == EVENTS:
            self.calls.append(("list", "", "events"))
            assert query["fieldSelector"] == "type=Warning"
            return 200, {"kind": "EventList", "items": self.events}
        return self._there(None)

    def _create(self, job: Plain) -> tuple[int, Plain]:
        self.calls.append(("create", "trainer.kubeflow.org", "trainjobs"))
        if self.refusal:
            status, words = self.refusal
            return status, {"kind": "Status", "message": words, "code": status}
        name = job["metadata"]["name"]
        if name in self.jobs:
            return 409, {"kind": "Status", "message": f"{name} already exists", "code": 409}
        self._jobs_made += 1
        self.jobs[name] = job | {"metadata": job["metadata"] | {"uid": f"uid-{self._jobs_made}"}}
        return 201, self.jobs[name]

    def _delete(self, name: str, options: Plain) -> tuple[int, Plain | str]:
        self.calls.append(("delete", "trainer.kubeflow.org", "trainjobs"))
        job = self.jobs.get(name)
        if job and options["preconditions"]["uid"] != job["metadata"]["uid"]:
            return 409, {"kind": "Status", "message": "another uid", "code": 409}
        if job and options["propagationPolicy"] == "Foreground":  # the job stays until its pods are gone
            job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.script.insert(0, lambda: self._remove(name))
        return self._there(job)

    def _remove(self, name: str) -> None:
        self.jobs.pop(name, None)
        self.pods = {key: pod for key, pod in self.pods.items() if not key.startswith(f"{name}-")}

    def _look(self, name: str) -> tuple[int, Plain | str]:
        self.calls.append(("get", "trainer.kubeflow.org", "trainjobs"))
        self._looks += 1
        if self._looks > self.most_looks:
            return 418, {"kind": "Status", "message": "looked at too often", "code": 418}
        if self.script and name in self.jobs:
            self.script.pop(0)()
        return self._there(self.jobs.get(name))

    def _log(self, pod: str, query: dict[str, str]) -> tuple[int, Plain | str]:
        self.calls.append(("get", "", "pods/log"))
        assert query["timestamps"] == "True" or query["timestamps"] == "true"
        assert query["container"] == "node" and "follow" not in query
        if pod not in self.pods:
            return self._there(None)
        said = [(moment, text) for moment, text in self.said.get(pod, []) if moment >= query.get("sinceTime", "")]
        return 200, "".join(f"{moment} {text}\n" for moment, text in said)

    def _there(self, found: Plain | None) -> tuple[int, Plain | str]:
        return (200, found) if found is not None else (404, {"kind": "Status", "message": "not found", "code": 404})


def own_pod(name: str = "train-xyz-retriever-1-123", **metadata: Any) -> Plain:
    """Return the pod of a step as Kubeflow creates it."""
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "train-xyz", "uid": "w-1"}
    return {
        "metadata": {
            "name": name,
            "uid": "p-1",
            "labels": {"pipeline/runid": "run-1", "stillhouse.io/task": "pretrain"},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        }
        | metadata,
        "spec": {
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [
                {"name": "wait", "image": "argoexec:v3", "volumeMounts": []},
                {
                    "name": "main",
                    "image": "registry.example/stillhouse@sha256:" + "0" * 64,
                    "env": [
                        {"name": "STILLHOUSE_WORK", "value": "/volume"},
                        {"name": "STILLHOUSE_RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
                        {
                            "name": "AWS_ACCESS_KEY_ID",
                            "valueFrom": {"secretKeyRef": {"name": "mine", "key": "access-key-id", "optional": True}},
                        },
                        {"name": "KFP_POD_NAME", "value": name},
                    ],
                    "volumeMounts": [
                        {"name": "chosen-claim", "mountPath": "/volume"},
                        {"name": "keys", "mountPath": "/keys"},
                        {"name": "kfp-launcher", "mountPath": "/kfp-launcher"},
                    ],
                },
            ],
            "volumes": [
                {"name": "chosen-claim", "persistentVolumeClaim": {"claimName": "team-work"}},
                {"name": "keys", "secret": {"secretName": "mine", "optional": True}},
                {"name": "kfp-launcher", "emptyDir": {}},
            ],
        },
        "status": {"phase": "Running"},
    }
