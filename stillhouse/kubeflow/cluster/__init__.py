"""Why a submitted pod does not start, and how pods failed, as Kubernetes tells it.

| module | what it does |
|---|---|
| `api` | the connection to the cluster; it only reads |
| `remedies` | messages from Kubernetes, Argo and Kueue about something missing, and what to do about it |
| `waiting` | why a submitted pod does not start |
"""
