"""A Kubernetes emulator that runs pods as processes of this machine, from the same manifests.

- cluster: the implementation of `shell.cluster.Cluster`. options: its options.
- admission: pure; validation and defaults of the API server and of the operator's webhook.
- store, objects: the durable object store and its subscribers. state_lock: one server per state directory.
- following: the watch of all objects. events: Kubernetes events.
- controller: pure; the state machine of the training-operator. jobs, work: run it.
- nodes, node_affinity, resources: pure; node capacity and pod placement. scheduler: binds pods.
- machine, node_states, node_commands: the nodes, and commands such as drain.
- pods, pod_states, pod_events, templates: the life cycle of a pod object. ports: one port per job.
- kubelet, kubelet_options, pod_record: pods as process groups.
- pod_launch, pod_env, pod_names, pod_volumes: pure; the program that the shim of a bound pod runs.
- pod_directory, pod_status, pod_logs, leftovers: files, state and output of a pod, and cleanup.
- shim: the process that owns one pod.
- tasks: serialized background work per pod.
"""
