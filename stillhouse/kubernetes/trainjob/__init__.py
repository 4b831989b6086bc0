"""One step on several nodes: its pod starts a `TrainJob` of Kubeflow Trainer, follows it and collects what it made.

| module | what it does |
|---|---|
| `settings` | what the step's pod gets about the nodes, by its placement |
| `own_pod` | what the nodes take over from the step's pod: run, owner, image, volumes, secrets |
| `manifest` | the `TrainJob`, as a function of the two |
| `exchange` | the folder on the shared volume through which inputs and outputs go |
| `cluster` | the calls to Kubernetes, repeated until they are answered |
| `logs` | the lines of the nodes, each shown once |
| `outcome` | whether the job has ended, and why it failed |
| `follow` | finds or starts the job, and stays with it to its end |
| `parts`, `part` | work in parts that nodes take in turn, and what runs on a node then |
| `shares` | a corpus that nodes encode or count in shards |
| `run_end` | what becomes of the job when the step's pod has to end |
| `launch` | all of it, for one step |
| `node` | what runs on each node |
"""
