"""What a run asks of a Kubernetes cluster, what the cluster has, and why a pod does not begin.

| module | what it does |
|---|---|
| `api` | the connection, and reading what the cluster holds; nothing is changed |
| `quantity` | Kubernetes' way to write amounts |
| `wanted` | what a run's pods ask for, as data that the compiled pipeline carries |
| `readings` | what the cluster has of it |
| `argo_retries` | which pods Argo tries again, and what that means for a run |
| `admission` | what is missing, each with its remedy, before any pod that would wait for it |
| `remedies` | what Kubernetes, Argo and Kueue say when something is missing, and what to do about it |
| `waiting` | why a pod that was started does not begin |
"""
