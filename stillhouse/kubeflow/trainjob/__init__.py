"""One step on several nodes: its pod starts a Kubeflow Trainer `TrainJob`, follows it and collects its outputs.

| module | what it does |
|---|---|
| `settings` | the node settings that the placement gives the step's pod |
| `own_pod` | what the nodes take over from the step's pod: run, owner, image, volumes, secrets |
| `manifest` | the `TrainJob`, as a function of the two |
| `exchange` | the folder on the shared volume for inputs and outputs |
| `cluster` | calls to Kubernetes, repeated until answered |
| `logs` | the nodes' log lines, each shown once |
| `outcome` | whether the job has ended, and why it failed |
| `follow` | finds or starts the job, and follows it to its end |
| `parts`, `part` | work in parts that nodes take in turn, and the program that does them on a node |
| `shares` | a corpus that nodes encode or count in shards |
| `run_end` | what happens to the job when the step's pod has to end |
| `launch` | all of this, for one step |
| `node` | what runs on each node |
"""
