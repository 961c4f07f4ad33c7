"""A Kubernetes cluster emulated in one process; pods run as process groups of this machine.

cluster, options: the implementation of `shell.cluster.Cluster` and its options.
admission: validation and defaults of the API server. Pure.
store, objects, changes, state_lock: durable objects and their watchers; one server per state directory.
following, events: delivery of changes to a sink; the event recorder.
operators: the emulated operators, which validate and reconcile jobs. Pure.
jobs, work: the job reconciler and its work queue. ports: one port for each job.
nodes, node_affinity, resources: placement of pods on nodes. Pure.
scheduler: the scheduling loop.
machine, node_states, node_commands: the nodes, and the commands that fail, drain and restore them.
pods, pod_states, pod_events, templates: the lifecycle of pod objects; PodTemplates. tasks: one queue per pod.
kubelet, kubelet_options, pod_record, pod_orders: the process groups of pods, and orders to their shims.
pod_launch, pod_env, pod_names, pod_volumes: the launch file of a bound pod. Pure.
pod_directory, pod_status, pod_logs, leftovers: files, status and logs of a pod; processes of a killed shim.
shim: the process that owns one pod.
"""
