"""What a run needs from a Kubernetes cluster, what the cluster has, and why a pod does not start.

| module | what it does |
|---|---|
| `api` | the connection to the cluster; it only reads |
| `quantity` | amounts in the notation of Kubernetes |
| `wanted` | what a run's pods ask for, as data in the compiled pipeline |
| `readings` | how much of it the cluster has |
| `admission` | what is missing, each with its remedy, before any pod waits for it |
| `remedies` | messages from Kubernetes, Argo and Kueue about something missing, and what to do about it |
| `waiting` | why a submitted pod does not start |
"""
