{{/* Fail with all invalid combinations of values in one message. The schema checks each value alone. */}}
{{- define "kfpytorch.problems" -}}
{{- $gang := .Values.gang -}}
{{- $gangs := .Files.Get "files/gangs.yaml" | fromYaml -}}
{{- $known := get $gangs $gang.scheduler -}}
{{- $creators := default list $known.podGroupsBy -}}
{{- $problems := list -}}
{{- $name := include "kfpytorch.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- $problems = append $problems (printf "fullnameOverride: the name of the objects would be %s, but the name of a Service starts with a letter and contains only a-z, 0-9 and -; write such a name" $name) -}}
{{- end -}}
{{- $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels -}}
{{- $_ := set $labels "metrics.serviceMonitor.labels" .Values.metrics.serviceMonitor.labels -}}
{{- $_ := set $labels "metrics.prometheusRule.labels" .Values.metrics.prometheusRule.labels -}}
{{- $_ := set $labels "metrics.dashboard.labels" .Values.metrics.dashboard.labels -}}
{{- range $value, $all := $labels -}}
{{- range $label, $_ := $all -}}
{{- if has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart") -}}
{{- $problems = append $problems (printf "%s: the chart sets %s and selects pods by it; leave it out" $value $label) -}}
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
{{- range $key, $value := dict "scheduler-name" "schedulerName" "queue" "queue" "local-queue" "localQueue" "schedule-timeout" "scheduleTimeout" -}}
{{- if and (get $part $key) (not (has $value $its.understands)) -}}
{{- $problems = append $problems (printf "%s.%s: %s is not supported by %s; leave it out" $path $key (get $part $key) $scheduler) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.podTemplates.enabled (not $known.podTemplate) -}}
{{- $problems = append $problems (printf "podTemplates.enabled: true has no effect with gang.scheduler %s, because its pods need no settings; leave it out" $gang.scheduler) -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled .Values.tls.existingSecret -}}
{{- $problems = append $problems (printf "tls.existingSecret: %s cannot be combined with tls.certManager.enabled; leave one of them out" .Values.tls.existingSecret) -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- $problems = append $problems "tls.certManager.issuerRef.name: '' is not the name of an issuer; write the name of the one that signs the certificate" -}}
{{- end -}}
{{- if and .Values.tls.clientCaKey (not (include "kfpytorch.tlsSecret" .)) -}}
{{- $problems = append $problems (printf "tls.clientCaKey: %s has no effect without TLS; set tls.existingSecret or tls.certManager.enabled" .Values.tls.clientCaKey) -}}
{{- end -}}
{{- if and .Values.tls.clientNames (not .Values.tls.clientCaKey) -}}
{{- $problems = append $problems (printf "tls.clientNames: %s has no effect without a CA for client certificates; set tls.clientCaKey" (join ", " .Values.tls.clientNames)) -}}
{{- end -}}
{{- if not .Values.metrics.enabled -}}
{{- if .Values.metrics.serviceMonitor.enabled -}}
{{- $problems = append $problems "metrics.serviceMonitor.enabled: true requires metrics.enabled: true" -}}
{{- end -}}
{{- if .Values.metrics.dashboard.enabled -}}
{{- $problems = append $problems "metrics.dashboard.enabled: true requires metrics.enabled: true" -}}
{{- end -}}
{{- else if eq (int .Values.metrics.port) (int .Values.server.port) -}}
{{- $problems = append $problems (printf "metrics.port: %d is also the value of server.port; write another port" (int .Values.metrics.port)) -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (not .Values.metrics.serviceMonitor.enabled) -}}
{{- $problems = append $problems "metrics.prometheusRule.enabled: true needs the labels that the ServiceMonitor sets; write metrics.serviceMonitor.enabled: true" -}}
{{- end -}}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- $problems = append $problems (printf "service.nodePort: %d has no effect with service.type: %s; write service.type: NodePort" (int .Values.service.nodePort) .Values.service.type) -}}
{{- end -}}
{{- range list "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if and (get $.Values.service .) (ne $.Values.service.type "LoadBalancer") -}}
{{- $problems = append $problems (printf "service.%s: %v has no effect with service.type: %s; write service.type: LoadBalancer" . (get $.Values.service .) $.Values.service.type) -}}
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
{{- $problems = append $problems (printf "service.externalTrafficPolicy: %s has no effect with service.type: ClusterIP; write service.type: LoadBalancer or NodePort" .Values.service.externalTrafficPolicy) -}}
{{- end -}}
{{- if not (or .Values.networkPolicy.enabled .Values.server.tokenSecret .Values.tls.clientCaKey .Values.insecure.acknowledged) -}}
{{- $problems = append $problems "networkPolicy.enabled: false, without server.tokenSecret and tls.clientCaKey, lets every pod of the cluster start pods in the namespaces of tasks; set one of the three, or insecure.acknowledged: true" -}}
{{- end -}}
{{- if has .Release.Namespace .Values.namespaces -}}
{{- $problems = append $problems (printf "namespaces: %s is the namespace of the release, in which tasks are rejected; install the chart in another namespace" .Release.Namespace) -}}
{{- end -}}
{{- $volumes := dict -}}
{{- range .Values.extraVolumes -}}
{{- if or (has .name (list "settings" "signing" "state" "tmp" "tls" "token")) (hasKey $volumes .name) -}}
{{- $problems = append $problems (printf "extraVolumes: the name %s is already in use; write another name" .name) -}}
{{- end -}}
{{- $_ := set $volumes .name true -}}
{{- end -}}
{{- $paths := dict -}}
{{- range .Values.extraVolumeMounts -}}
{{- if not (hasKey $volumes .name) -}}
{{- $problems = append $problems (printf "extraVolumeMounts: there is no volume %s; write the name of a volume in extraVolumes" .name) -}}
{{- end -}}
{{- if or (has (trimSuffix "/" .mountPath) (list "/tmp" "/var/lib/kfpytorch" "/etc/kfpytorch" "/etc/kfpytorch/settings.yaml" "/etc/kfpytorch/signing" "/etc/kfpytorch/tls" "/etc/kfpytorch/token")) (hasKey $paths .mountPath) -}}
{{- $problems = append $problems (printf "extraVolumeMounts: the path %s is already in use; write another path" .mountPath) -}}
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
{{- $problems = append $problems (printf "extraEnv: %s overrides server.%s, which the chart sets from other values; leave it out, and change those values" .name (get $variables .name)) -}}
{{- end -}}
{{- if has .name (list "HOME" "KFPYTORCH_STATE_DIR" "KFPYTORCH_SETTINGS" "KFPYTORCH_TOKEN") -}}
{{- $problems = append $problems (printf "extraEnv: the chart sets %s; leave it out" .name) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- $problems = append $problems "serviceAccount.name: '' requires serviceAccount.create: true; otherwise write the name of an existing ServiceAccount. It gets the permissions of the connector, so do not use default, which other pods use as well" -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n%s" (join "\n" $problems)) -}}
{{- end -}}
{{- end -}}
