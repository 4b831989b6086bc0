"""One step on several nodes: its pod starts a Kubeflow Trainer `TrainJob`, follows it and collects its outputs.

| module | what it does |
|---|---|
| `settings` | the node settings that the placement gives the step's pod |
| `own_pod` | what the nodes take over from the step's pod: run, owner, image, volumes, secrets |
| `manifest` | the `TrainJob`, as a function of the two |
| `cluster` | calls to Kubernetes, repeated until answered |
| `follow` | finds or starts the job, and follows it and its nodes' logs to its end |
| `launch` | all of this, for one step |
| `parts` | work in parts that nodes take in turn, and the program that does them on a node |
| `division`, `shares` | a corpus that nodes encode or count in shards |
"""
