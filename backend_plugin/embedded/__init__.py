"""A cluster in one process: the same manifests run as processes of this machine.

cluster: ties all of it together behind `shell.cluster.Cluster`; options say how it is to be.
admission: PURE; what the API server and the operator's webhook refuse and fill in.
store, objects: the objects, durable, and who is told of their changes. state_lock: one server a directory.
following: changes, as whoever follows the cluster is told of them. events: what is said about objects.
controller: PURE; the training-operator's state machine. jobs, work: when it is asked, and the doing.
nodes, node_affinity, resources: PURE; what nodes hold, and where a pod fits. scheduler: when that is asked.
machine, node_states, node_commands: the nodes, and what people do to them.
pods, pod_states, pod_events, templates: what becomes of a pod object. ports: one for each job.
kubelet, kubelet_options, pod_record: pods as process groups.
pod_launch, pod_env, pod_names, pod_volumes: PURE; a bound pod → what its shim is to run.
pod_directory, pod_status, pod_logs, leftovers: its files, state and output, what a killed shim leaves.
shim: the process that every pod has.
tasks: what goes on for one pod after the other.
"""
