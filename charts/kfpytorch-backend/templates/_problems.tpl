{{/* Fail with all invalid combinations of values in one message. The schema checks each value alone. */}}
{{- define "kfpytorch.problems" -}}
{{- $gang := .Values.gang -}}
{{- $gangs := .Files.Get "files/gangs.yaml" | fromYaml -}}
{{- $known := get $gangs $gang.scheduler -}}
{{- $creators := default list $known.podGroupsBy -}}
{{- $problems := list -}}
{{- $name := include "kfpytorch.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- $problems = append $problems (printf "fullnameOverride: %s is what objects would be called, and a Service's name begins with a letter and has a-z, 0-9 and - in it; write one that does" $name) -}}
{{- end -}}
{{- $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels -}}
{{- $_ := set $labels "metrics.serviceMonitor.labels" .Values.metrics.serviceMonitor.labels -}}
{{- $_ := set $labels "metrics.prometheusRule.labels" .Values.metrics.prometheusRule.labels -}}
{{- $_ := set $labels "metrics.dashboard.labels" .Values.metrics.dashboard.labels -}}
{{- range $said, $all := $labels -}}
{{- range $label, $_ := $all -}}
{{- if has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart") -}}
{{- $problems = append $problems (printf "%s: %s is the chart's own, and by it servers are found; leave it out" $said $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $creators (not $gang.podGroupsBy) -}}
{{- $problems = append $problems (printf "gang.podGroupsBy: '' does not define what creates the groups of %s; write operator if the training-operator runs with --gang-scheduler-name, and backend if it does not" $gang.scheduler) -}}
{{- else if and $gang.podGroupsBy (not $creators) -}}
{{- $problems = append $problems (printf "gang.podGroupsBy: %s is not supported by %s; leave it out" $gang.podGroupsBy $gang.scheduler) -}}
{{- end -}}
{{- range list "schedulerName" "queue" "localQueue" "scheduleTimeout" -}}
{{- if and (get $gang .) (not (has . $known.understands)) -}}
{{- $problems = append $problems (printf "gang.%s: %s is not supported by %s; leave it out" . (get $gang .) $gang.scheduler) -}}
{{- end -}}
{{- end -}}
{{- range $kind := list "byNamespace" "byProject" "allowedSchedulers" -}}
{{- range $name, $part := index $gang $kind -}}
{{- $part = default dict $part -}}
{{- $path := printf "gang.%s.%s" $kind $name -}}
{{- $scheduler := default (eq $kind "allowedSchedulers" | ternary $name $gang.scheduler) $part.scheduler -}}
{{- $its := get $gangs $scheduler -}}
{{- if and $its.podGroupsBy (or $part.scheduler (eq $kind "allowedSchedulers")) (not (get $part "pod-groups-by")) -}}
{{- $problems = append $problems (printf "%s.pod-groups-by: '' does not define what creates the groups of %s; write operator or backend" $path $scheduler) -}}
{{- else if and (get $part "pod-groups-by") (not $its.podGroupsBy) -}}
{{- $problems = append $problems (printf "%s.pod-groups-by: %s is not supported by %s; leave it out" $path (get $part "pod-groups-by") $scheduler) -}}
{{- end -}}
{{- range $key, $meant := dict "scheduler-name" "schedulerName" "queue" "queue" "local-queue" "localQueue" "schedule-timeout" "scheduleTimeout" -}}
{{- if and (get $part $key) (not (has $meant $its.understands)) -}}
{{- $problems = append $problems (printf "%s.%s: %s is not supported by %s; leave it out" $path $key (get $part $key) $scheduler) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.podTemplates.enabled (not $known.podTemplate) -}}
{{- $problems = append $problems (printf "podTemplates.enabled: true says nothing with gang.scheduler %s, of which a pod names nothing; leave it out" $gang.scheduler) -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled .Values.tls.existingSecret -}}
{{- $problems = append $problems (printf "tls.existingSecret: %s is a second certificate beside that of tls.certManager; leave one out" .Values.tls.existingSecret) -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- $problems = append $problems "tls.certManager.issuerRef.name: '' is no Issuer; name the one that is to sign the certificate" -}}
{{- end -}}
{{- if and .Values.tls.clientCaKey (not (include "kfpytorch.tlsSecret" .)) -}}
{{- $problems = append $problems (printf "tls.clientCaKey: %s says nothing without a certificate; name tls.existingSecret" .Values.tls.clientCaKey) -}}
{{- end -}}
{{- if and .Values.tls.clientNames (not .Values.tls.clientCaKey) -}}
{{- $problems = append $problems (printf "tls.clientNames: %s has no effect without a CA for client certificates; write tls.clientCaKey" (join ", " .Values.tls.clientNames)) -}}
{{- end -}}
{{- if not .Values.metrics.enabled -}}
{{- if .Values.metrics.serviceMonitor.enabled -}}
{{- $problems = append $problems "metrics.serviceMonitor.enabled: true has nothing to show; write metrics.enabled: true" -}}
{{- end -}}
{{- if .Values.metrics.dashboard.enabled -}}
{{- $problems = append $problems "metrics.dashboard.enabled: true has nothing to show; write metrics.enabled: true" -}}
{{- end -}}
{{- else if eq (int .Values.metrics.port) (int .Values.server.port) -}}
{{- $problems = append $problems (printf "metrics.port: %d is that of the server, too; write another" (int .Values.metrics.port)) -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (not .Values.metrics.serviceMonitor.enabled) -}}
{{- $problems = append $problems "metrics.prometheusRule.enabled: true needs the labels that the ServiceMonitor sets; write metrics.serviceMonitor.enabled: true" -}}
{{- end -}}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- $problems = append $problems (printf "service.nodePort: %d says nothing of a %s; write service.type: NodePort" (int .Values.service.nodePort) .Values.service.type) -}}
{{- end -}}
{{- range list "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if and (get $.Values.service .) (ne $.Values.service.type "LoadBalancer") -}}
{{- $problems = append $problems (printf "service.%s: %v says nothing of a %s; write service.type: LoadBalancer" . (get $.Values.service .) $.Values.service.type) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (ne .Values.service.type "ClusterIP") (not .Values.networkPolicy.allowedCIDRs) -}}
{{- if not .Values.service.loadBalancerSourceRanges -}}
{{- $problems = append $problems (printf "networkPolicy.enabled: true blocks the clients of the %s; list their address ranges in networkPolicy.allowedCIDRs, or 0.0.0.0/0 for all" .Values.service.type) -}}
{{- else if ne .Values.service.externalTrafficPolicy "Local" -}}
{{- $problems = append $problems "networkPolicy.enabled: true blocks requests that one node forwards to another, because they have the address of the node; write service.externalTrafficPolicy: Local, or list the addresses of the nodes in networkPolicy.allowedCIDRs" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.service.externalTrafficPolicy (eq .Values.service.type "ClusterIP") -}}
{{- $problems = append $problems (printf "service.externalTrafficPolicy: %s says nothing of a ClusterIP; write service.type: LoadBalancer or NodePort" .Values.service.externalTrafficPolicy) -}}
{{- end -}}
{{- if not (or .Values.networkPolicy.enabled .Values.server.tokenSecret .Values.tls.clientCaKey .Values.insecure.acknowledged) -}}
{{- $problems = append $problems "networkPolicy.enabled: false, without server.tokenSecret and tls.clientCaKey, lets every pod of the cluster start pods in the namespaces of tasks; write one of the three, or insecure.acknowledged: true" -}}
{{- end -}}
{{- if has .Release.Namespace .Values.namespaces -}}
{{- $problems = append $problems (printf "namespaces: %s is the namespace of the release, in which no task runs; install the chart in a namespace of its own" .Release.Namespace) -}}
{{- end -}}
{{- $volumes := dict -}}
{{- range .Values.extraVolumes -}}
{{- if or (has .name (list "settings" "signing" "state" "tmp" "tls" "token")) (hasKey $volumes .name) -}}
{{- $problems = append $problems (printf "extraVolumes: %s is there already; give it another name" .name) -}}
{{- end -}}
{{- $_ := set $volumes .name true -}}
{{- end -}}
{{- $paths := dict -}}
{{- range .Values.extraVolumeMounts -}}
{{- if not (hasKey $volumes .name) -}}
{{- $problems = append $problems (printf "extraVolumeMounts: there is no volume %s; name one of extraVolumes" .name) -}}
{{- end -}}
{{- if or (has (trimSuffix "/" .mountPath) (list "/tmp" "/var/lib/kfpytorch" "/etc/kfpytorch" "/etc/kfpytorch/settings.yaml" "/etc/kfpytorch/signing" "/etc/kfpytorch/tls" "/etc/kfpytorch/token")) (hasKey $paths .mountPath) -}}
{{- $problems = append $problems (printf "extraVolumeMounts: something is mounted at %s already; mount it elsewhere" .mountPath) -}}
{{- end -}}
{{- $_ := set $paths .mountPath true -}}
{{- end -}}
{{- /* Variables override the settings file, so another port would break the Service and the probes. */ -}}
{{- $variables := dict -}}
{{- range $key, $value := (include "kfpytorch.settings" . | fromYaml).server -}}
{{- range $path := ternary (keys (ternary $value dict (kindIs "map" $value))) (list "") (kindIs "map" $value) -}}
{{- $setting := trimSuffix "." (printf "%s.%s" $key $path) -}}
{{- $_ := set $variables (printf "KFPYTORCH_%s" ($setting | replace "." "_" | replace "-" "_" | upper)) $setting -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $variables .name -}}
{{- $problems = append $problems (printf "extraEnv: %s replaces server.%s, which the chart sets from other values; leave it out, and change those values" .name (get $variables .name)) -}}
{{- end -}}
{{- if has .name (list "HOME" "KFPYTORCH_STATE_DIR" "KFPYTORCH_SETTINGS" "KFPYTORCH_TOKEN") -}}
{{- $problems = append $problems (printf "extraEnv: %s is the chart's own; leave it out" .name) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- $problems = append $problems "serviceAccount.name: '' with create: false is nobody's; name the ServiceAccount that is there. It gets the rights of a server: default is also that of every pod there that names none" -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n%s" (join "\n" $problems)) -}}
{{- end -}}
{{- end -}}
