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

{{- /* The name of a job: (dict "root" $ "verb" "rollup"). What runs it makes longer names of it: Kubernetes takes 52
characters of a CronJob, and the Spark operator adds 20 for the time, in a label of 63. */ -}}
{{- define "liveness.jobName" -}}
{{- $operator := and (eq .verb "rollup") .root.Values.rollup.sparkOperator.enabled | default false -}}
{{- $end := printf "-%s" .verb -}}
{{- $room := sub (ternary 43 52 $operator) (len $end) | int -}}
{{ include "liveness.fullname" .root | trunc $room | trimSuffix "-" }}{{ $end }}
{{- end }}

{{- define "liveness.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- define "liveness.selector" -}}
app.kubernetes.io/name: {{ include "liveness.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* Labels of a manifest: (dict "root" $ "component" "exporter" "further" .Values.service.labels), the last two as
needed. A key is written once, however many of them have it: the manifest's own labels go before those of all. */ -}}
{{- define "liveness.labels" -}}
{{- $selector := include "liveness.selector" .root | fromYaml }}
{{- with .component }}
{{- $_ := set $selector "app.kubernetes.io/component" . }}
{{- end }}
{{- $labels := dict "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/managed-by" .root.Release.Service }}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) }}
{{- mergeOverwrite $labels (.root.Values.commonLabels | default dict) (.further | default dict) $selector | toYaml }}
{{- end }}

{{- /* A reference to an image: (dict "root" $ "image" .Values.image) */ -}}
{{- define "liveness.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The image of the jobs. A digest names one image, so that of `image` holds only where jobs run from the same one. */ -}}
{{- define "liveness.jobsImage" -}}
{{- $jobs := .Values.jobs.image -}}
{{- $repository := $jobs.repository | default .Values.image.repository -}}
{{- $digest := $jobs.digest -}}
{{- if not (or $digest $jobs.tag (ne $repository .Values.image.repository)) -}}
{{- $digest = .Values.image.digest -}}
{{- end -}}
{{- $tag := $jobs.tag | default .Values.image.tag -}}
{{ include "liveness.image" (dict "root" . "image" (dict "repository" $repository "tag" $tag "digest" $digest)) }}
{{- end }}

{{- define "liveness.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "liveness.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- /* The claim is named after the release alone: a later fullnameOverride would else begin a new, empty volume. */ -}}
{{- define "liveness.claim" -}}
{{- $named := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{ .Values.persistence.existingClaim | default ($named | trunc 52 | trimSuffix "-") }}
{{- end }}

{{- /* The name of a manifest that may lie in a namespace that releases share: (dict "root" $ "namespace" "monitoring").
There the release's own namespace belongs to the name. */ -}}
{{- define "liveness.sharedName" -}}
{{- $own := include "liveness.namespace" .root -}}
{{- $name := include "liveness.fullname" .root -}}
{{- if and .namespace (ne .namespace $own) }}{{ printf "%s-%s" $own $name | trunc 120 | trimSuffix "-" }}{{ else }}{{ $name }}{{ end }}
{{- end }}

{{- /* Where history is: on the volume, or where the configuration says. */ -}}
{{- define "liveness.folder" -}}
{{ (.Values.config.history | default dict).folder | default "/var/lib/topic-liveness" }}
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

{{- /* The configuration file: the user's, with a folder and a name where it has none. */ -}}
{{- define "liveness.config" -}}
{{- $folder := dict "history" (dict "folder" (include "liveness.folder" .)) -}}
{{ merge $folder (deepCopy .Values.config) (dict "exporter" (include "liveness.fullname" .)) | toYaml }}
{{- end }}

{{- /* "true" where the exporter reads a file that is not made of `config`, else nothing. */ -}}
{{- define "liveness.unseen" -}}
{{- if or .Values.existingSecret (regexMatch "(^| )(-c|--config)" (join " " .Values.extraArgs)) }}true{{ end }}
{{- end }}

{{- /* The port that the configuration listens on; one that the chart does not see listens on 9797, by the environment. */ -}}
{{- define "liveness.port" -}}
{{- if include "liveness.unseen" . }}9797{{ else }}{{ (.Values.config.web | default dict).listen | default ":9797" | regexFind "[0-9]+$" }}{{ end }}
{{- end }}
