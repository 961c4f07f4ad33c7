{{/* Name of the objects. Release names may contain dots, Service names may not. */}}
{{- define "kfpytorch.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name $release -}}
{{- $release | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kfpytorch.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "kfpytorch.labels" -}}
{{ include "kfpytorch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of an object merged with the labels in `more`, which take precedence. */}}
{{- define "kfpytorch.labelsWith" -}}
{{- $labels := include "kfpytorch.labels" .root | fromYaml -}}
{{- toYaml (mustMergeOverwrite $labels (default dict .more)) -}}
{{- end -}}

{{/* Name, namespace and labels of an object in the release namespace. */}}
{{- define "kfpytorch.metadata" -}}
name: {{ include "kfpytorch.fullname" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "kfpytorch.labels" . | nindent 2 }}
{{- end -}}

{{- define "kfpytorch.account" -}}
{{- default (include "kfpytorch.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Pod security context. Fields that are null are left to the platform. */}}
{{- define "kfpytorch.podSecurityContext" -}}
runAsNonRoot: true
{{- range $field := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- $number := index (default dict $.Values.podSecurityContext) $field }}
{{- if not (kindIs "invalid" $number) }}
{{ $field }}: {{ int64 $number }}
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "kfpytorch.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* DNS name of the Service. */}}
{{- define "kfpytorch.host" -}}
{{- printf "%s.%s.svc.%s" (include "kfpytorch.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "kfpytorch.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "kfpytorch.fullname" .) -}}
{{- else -}}
{{- default "" .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{- define "kfpytorch.signingSecret" -}}
{{- default (printf "%s-signing" (include "kfpytorch.fullname" .)) .Values.signing.existingSecret -}}
{{- end -}}

{{/* "true" if one ClusterRole covers all namespaces: `namespaces` is empty or contains a pattern. */}}
{{- define "kfpytorch.everywhere" -}}
{{- if not .Values.namespaces -}}
true
{{- else -}}
{{- range .Values.namespaces -}}{{- if regexMatch "[*?\\[]" . -}}true{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Schedulers for which the connector creates pod groups, separated by spaces; "auto" means any. Kubeflow Trainer
creates no pod groups for TrainJobs, so the connector creates them even if podGroupsBy is "operator".
*/}}
{{- define "kfpytorch.grouped" -}}
{{- $gang := .Values.gang -}}
{{- $found := dict -}}
{{- $creators := list "backend" -}}
{{- if ne (include "kfpytorch.dialects" .) "pytorchjob" }}{{- $creators = append $creators "operator" -}}{{- end -}}
{{- if or (has $gang.podGroupsBy $creators) (eq $gang.scheduler "auto") }}{{- $_ := set $found $gang.scheduler true -}}{{- end -}}
{{- range $kind := list "byNamespace" "byProject" "allowedSchedulers" -}}
{{- range $name, $part := index $gang $kind -}}
{{- $part = default dict $part -}}
{{- $scheduler := default (eq $kind "allowedSchedulers" | ternary $name $gang.scheduler) $part.scheduler -}}
{{- if or (has (get $part "pod-groups-by") $creators) (eq $scheduler "auto") }}{{- $_ := set $found $scheduler true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- keys $found | sortAlpha | join " " -}}
{{- end -}}

{{/* "true" if no job uses a gang scheduler. */}}
{{- define "kfpytorch.alone" -}}
{{- with .Values.gang -}}
{{- if and (eq .scheduler "none") (not .byNamespace) (not .byProject) (not .allowedSchedulers) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The values of all settings that select the kind of a job, separated by spaces. */}}
{{- define "kfpytorch.dialects" -}}
{{- $ours := (include "kfpytorch.settings" . | fromYaml).plugins.k8s.kfpytorch -}}
{{- $kinds := list (default "auto" (get $ours "dialect")) -}}
{{- range $part := list "dialect-by-domain" "dialect-by-namespace" "dialect-by-project" -}}
{{- $kinds = concat $kinds (values (default dict (get $ours $part))) -}}
{{- end -}}
{{- uniq $kinds | sortAlpha | join " " -}}
{{- end -}}

{{/* "true" if the kind of a job depends on the operators of the cluster, as in PluginSettings.detects_dialect. */}}
{{- define "kfpytorch.selectsDialect" -}}
{{- if has "auto" (splitList " " (include "kfpytorch.dialects" .)) -}}true{{- end -}}
{{- end -}}

{{/* RBAC rules of the connector in the namespaces of tasks, as YAML. */}}
{{- define "kfpytorch.rules" -}}
{{- $rules := .Files.Get "files/rules.yaml" | fromYaml -}}
{{- $all := $rules.server -}}
{{- if not (include "kfpytorch.alone" .) }}{{- $all = concat $all $rules.gangs -}}{{- end -}}
{{- $grouped := splitList " " (include "kfpytorch.grouped" .) -}}
{{- if has "auto" $grouped }}{{- $all = concat $all $rules.dryRuns -}}{{- end -}}
{{- range $name, $rule := $rules.groups -}}
{{- if or (has $name $grouped) (has "auto" $grouped) }}{{- $all = append $all $rule -}}{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Content of plugins.connector-service in the FlytePropeller configuration, as YAML. */}}
{{- define "kfpytorch.connector" -}}
{{- $connector := .Files.Get "files/connector.yaml" | fromYaml -}}
{{- $endpoint := printf "dns:///%s:%v" (include "kfpytorch.host" .) .Values.service.port -}}
{{- $insecure := not (include "kfpytorch.tlsSecret" .) -}}
{{- $address := dict "endpoint" $endpoint "insecure" $insecure -}}
{{- $_ := set $connector "defaultConnector" (mustMergeOverwrite (dict) $connector.defaultConnector $address) -}}
{{- toYaml $connector -}}
{{- end -}}

{{/* Settings file of the connector. */}}
{{- define "kfpytorch.settings" -}}
{{- $server := dict
  "cluster" "kubernetes"
  "port" (int .Values.server.port)
  "drain-timeout" (printf "%ds" (int .Values.server.drainTimeoutSeconds))
  "max-concurrent-rpcs" (int .Values.server.maxConcurrentRpcs)
  "log" (dict "level" .Values.server.logLevel "format" .Values.server.logFormat)
  "kubernetes" (dict "orphan-scan-interval" .Values.server.orphanScanInterval)
-}}
{{- with .Values.namespaces }}{{- $_ := set $server "namespaces" . -}}{{- end -}}
{{- $_ := set $server "namespace-template" .Values.namespaceTemplate -}}
{{- $_ := set $server "excluded-namespaces" (list .Release.Namespace) -}}
{{- with .Values.outputPrefixes }}{{- $_ := set $server "output-prefixes" . -}}{{- end -}}
{{- if .Values.metrics.enabled }}{{- $_ := set $server "metrics" (dict "port" (int .Values.metrics.port)) -}}{{- end -}}
{{- $_ := set $server "signing-keys-file" "/etc/kfpytorch/signing/keys" -}}
{{- if .Values.signing.acceptUnsigned }}{{- $_ := set $server "accept-unsigned" true -}}{{- end -}}
{{- if .Values.server.tokenSecret }}{{- $_ := set $server "token-file" "/etc/kfpytorch/token/token" -}}{{- end -}}
{{- if include "kfpytorch.tlsSecret" . -}}
{{- $tls := dict "certificate" "/etc/kfpytorch/tls/tls.crt" "key" "/etc/kfpytorch/tls/tls.key" -}}
{{- with .Values.tls.clientCaKey }}{{- $_ := set $tls "client-ca" (printf "/etc/kfpytorch/tls/%s" .) -}}{{- end -}}
{{- with .Values.tls.clientNames }}{{- $_ := set $tls "client-names" . -}}{{- end -}}
{{- $_ := set $server "tls" $tls -}}
{{- end -}}
{{- $gang := dict -}}
{{- $names := dict "schedulerName" "scheduler-name" "localQueue" "local-queue" "byNamespace" "by-namespace" "byProject" "by-project" "podGroupsBy" "pod-groups-by" "scheduleTimeout" "schedule-timeout" "allowedSchedulers" "allowed-schedulers" -}}
{{- range $value := keys .Values.gang -}}
{{- $key := default $value (get $names $value) -}}
{{- with get $.Values.gang $value }}{{- $_ := set $gang $key . -}}{{- end -}}
{{- end -}}
{{- $platform := default dict .Values.platform -}}
{{- $ours := mustMergeOverwrite (deepCopy (default dict $platform.kfpytorch)) (dict "gang" $gang) -}}
{{- if and .Values.podTemplates.enabled (not (hasKey $ours "pod-template-namespace")) -}}
{{- $_ := set $ours "pod-template-namespace" (default .Values.doctor.flyteNamespace .Values.podTemplates.namespace) -}}
{{- end -}}
{{- $k8s := mustMergeOverwrite (deepCopy $platform) (dict "kfpytorch" $ours) -}}
{{- toYaml (dict "server" $server "plugins" (dict "k8s" $k8s)) -}}
{{- end -}}
