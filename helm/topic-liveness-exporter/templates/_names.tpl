{{- define "liveness.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "liveness.fullname" -}}
{{- $name := include "liveness.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "liveness.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- define "liveness.selector" -}}
app.kubernetes.io/name: {{ include "liveness.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "liveness.labels" -}}
{{ include "liveness.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "liveness.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "liveness.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "liveness.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "liveness.claim" -}}
{{ .Values.persistence.existingClaim | default (include "liveness.fullname" .) }}
{{- end }}

{{- /* Where history is: on the volume, or where the configuration says. */ -}}
{{- define "liveness.folder" -}}
{{ dig "history" "folder" "/var/lib/topic-liveness" .Values.config }}
{{- end }}

{{- /* "true" where history is on a volume of the pod, else nothing. */ -}}
{{- define "liveness.onVolume" -}}
{{- if not (contains "://" (include "liveness.folder" .)) -}}
{{- if or .Values.objectStorage.existingSecret .Values.objectStorage.extraEnv }}
{{- fail "objectStorage is set, and history is on a volume: name the storage, as in config.history.folder=s3://BUCKET/FOLDER, or leave objectStorage out" }}
{{- end -}}
true
{{- end }}
{{- end }}

{{- /* The configuration file: the chart's part under the user's. */ -}}
{{- define "liveness.config" -}}
{{- $ours := dict "exporter" (include "liveness.fullname" .) "history" (dict "folder" (include "liveness.folder" .)) -}}
{{ mergeOverwrite $ours (deepCopy .Values.config) | toYaml }}
{{- end }}

{{- /* The port that the configuration listens on; one from a Secret listens on 9797, by the environment. */ -}}
{{- define "liveness.port" -}}
{{- if .Values.existingSecret }}9797{{ else }}{{ dig "web" "listen" "0.0.0.0:9797" .Values.config | regexFind "[0-9]+$" }}{{ end }}
{{- end }}
