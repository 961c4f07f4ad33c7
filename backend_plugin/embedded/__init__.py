"""A Kubernetes cluster emulated in one process; pods run as process groups of this machine.

cluster, options: the implementation of `shell.cluster.Cluster` and its options.
admission: validation and defaults of the API server. Pure.
store, objects, state_lock: durable objects and their watchers; one server per state directory.
watch_feed, events: delivery of changes to a sink; the event recorder.
operators: the emulated operators, which validate and reconcile jobs. Pure.
job_reconciler, workqueue: the job reconciler and the queues. ports: one port for each job.
scheduler, scheduling_cycle, node_affinity, resources: placement of pods on nodes.
machine_nodes, node_controller, node_transitions: the nodes, and the commands for them.
pods, pod_transitions, pod_events, pod_templates: the lifecycle of pod objects; PodTemplates.
kubelet, kubelet_options, pod_record, shim_commands: the process groups of pods, and commands to their shims.
pod_launch, pod_env, pod_addresses, pod_volumes: the launch file of a bound pod. Pure.
pod_directory, pod_status, pod_logs, leftover_processes: files, status and logs of a pod, and processes that
outlive its shim.
shim: the process that owns one pod.
"""
