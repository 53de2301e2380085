{{- /* What the exporter's pod and those of the jobs share: (dict "root" $ "of" .Values.rollup) */ -}}
{{- define "liveness.pod" -}}
serviceAccountName: {{ include "liveness.serviceAccount" .root | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .of.nodeSelector | default .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations | default .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- end }}

{{- define "liveness.volumes" -}}
- name: config
  {{- if .Values.existingSecret }}
  secret: {secretName: {{ .Values.existingSecret | quote }}, defaultMode: 0440}
  {{- else }}
  configMap: {name: {{ include "liveness.fullname" . }}}
  {{- end }}
{{- if include "liveness.onVolume" . }}
- name: history
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim: {claimName: {{ include "liveness.claim" . | quote }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
- name: tmp
  emptyDir: {}
{{- end }}

{{- define "liveness.mounts" -}}
- {name: config, mountPath: /etc/topic-liveness, readOnly: true}
{{- if include "liveness.onVolume" . }}
- {name: history, mountPath: /var/lib/topic-liveness}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- /* What every process gets: of a configuration that the chart does not see, what it must know is set over it. */ -}}
{{- define "liveness.env" -}}
{{- if include "liveness.unseen" . }}
- {name: TOPIC_LIVENESS_EXPORTER, value: {{ include "liveness.fullname" . | quote }}}
- {name: TOPIC_LIVENESS_HISTORY__FOLDER, value: {{ include "liveness.folder" . | quote }}}
- {name: TOPIC_LIVENESS_WEB__LISTEN, value: ":9797"}
{{- end }}
{{- with .Values.objectStorage.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "liveness.envFrom" -}}
{{- with .Values.objectStorage.existingSecret }}
- secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "liveness.jobEnv" -}}
{{ concat (list (dict "name" "HOME" "value" "/tmp")) (include "liveness.env" .root | fromYamlArray) (.job.extraEnv | default list) | toYaml }}
{{- end }}

{{- define "liveness.needsHistory" -}}
{{- if and (eq (toString (.root.Values.config.history | default dict).enabled) "false") (not (include "liveness.unseen" .root)) }}
{{- fail (printf "%s.enabled needs config.history.enabled: the job reads the history that the exporter keeps. Set config.history.enabled=true, or %s.enabled=false" .verb .verb) }}
{{- end }}
{{- if and (include "liveness.onVolume" .root) (not .root.Values.persistence.enabled) }}
{{- fail (printf "%s.enabled needs persistence.enabled, or object storage in config.history.folder: the job reads the history that the exporter keeps. Set persistence.enabled=true, or %s.enabled=false" .verb .verb) }}
{{- end }}
{{- end }}

{{- /* A Spark job on the history: (dict "root" $ "verb" "rollup" "job" .Values.rollup) */ -}}
{{- define "liveness.job" -}}
{{- $root := .root -}}
{{- include "liveness.needsHistory" . -}}
{{- $deliver := and (eq .verb "report") $root.Values.delivery.enabled | default false -}}
{{- if and $deliver (not $root.Values.existingSecret) (not ($root.Values.config.delivery | default dict).recipients) }}
{{- fail "delivery.enabled needs config.delivery.recipients: they say who is sent the report" }}
{{- end -}}
{{- $affinity := .job.affinity -}}
{{- if and (include "liveness.onVolume" $root) (has "ReadWriteOnce" $root.Values.persistence.accessModes) }}
{{- $labels := merge (include "liveness.selector" $root | fromYaml) (dict "app.kubernetes.io/component" "exporter") }}
{{- $near := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) }}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $given := get ($affinity.podAffinity | default dict) $required | default list }}
{{- $affinity = merge (dict "podAffinity" (dict $required (prepend $given $near))) $affinity }}
{{- end -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "liveness.jobName" . }}
  namespace: {{ include "liveness.namespace" $root | quote }}
  labels: {{- include "liveness.labels" (dict "root" $root "component" .verb) | nindent 4 }}
spec:
  schedule: {{ .job.schedule | quote }}
  timeZone: Etc/UTC
  suspend: {{ .job.suspend }}
  concurrencyPolicy: {{ .job.concurrencyPolicy }}
  startingDeadlineSeconds: {{ int64 .job.startingDeadlineSeconds }}
  successfulJobsHistoryLimit: {{ int64 .job.successfulJobsHistoryLimit }}
  failedJobsHistoryLimit: {{ int64 .job.failedJobsHistoryLimit }}
  jobTemplate:
    spec:
      backoffLimit: {{ int64 .job.backoffLimit }}
      activeDeadlineSeconds: {{ int64 .job.activeDeadlineSeconds }}
      {{- if not (kindIs "invalid" .job.ttlSecondsAfterFinished) }}
      ttlSecondsAfterFinished: {{ int64 .job.ttlSecondsAfterFinished }}
      {{- end }}
      template:
        metadata:
          {{- $selector := include "liveness.selector" $root | fromYaml }}
          labels: {{- merge $selector (dict "app.kubernetes.io/component" .verb) (.job.podLabels | default dict) | toYaml | nindent 12 }}
          {{- with .job.podAnnotations }}
          annotations: {{- toYaml . | nindent 12 }}
          {{- end }}
        spec:
          restartPolicy: Never
          {{- include "liveness.pod" (dict "root" $root "of" .job) | nindent 10 }}
          {{- with $affinity }}
          affinity: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .job.initContainers }}
          initContainers: {{- toYaml . | nindent 12 }}
          {{- end }}
          containers:
            - name: {{ .verb }}
              image: {{ include "liveness.jobsImage" $root }}
              imagePullPolicy: {{ $root.Values.image.pullPolicy }}
              args: {{- concat (list .verb "--config" "/etc/topic-liveness/config.yaml") (ternary (list "--deliver") list $deliver) (.job.args | default list) | toYaml | nindent 16 }}
              env: {{- include "liveness.jobEnv" . | nindent 16 }}
              {{- with concat (include "liveness.envFrom" $root | fromYamlArray) (.job.extraEnvFrom | default list) }}
              envFrom: {{- toYaml . | nindent 16 }}
              {{- end }}
              resources: {{- toYaml .job.resources | nindent 16 }}
              securityContext: {{- toYaml $root.Values.securityContext | nindent 16 }}
              volumeMounts: {{- include "liveness.mounts" $root | nindent 16 }}
                {{- if and $deliver $root.Values.delivery.existingSecret }}
                - {name: delivery, mountPath: /run/secrets/delivery, readOnly: true}
                {{- end }}
                {{- with .job.extraVolumeMounts }}
                {{- toYaml . | nindent 16 }}
                {{- end }}
            {{- with .job.extraContainers }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          volumes: {{- include "liveness.volumes" $root | nindent 12 }}
            {{- if and $deliver $root.Values.delivery.existingSecret }}
            - name: delivery
              secret: {secretName: {{ $root.Values.delivery.existingSecret | quote }}, defaultMode: 0440}
            {{- end }}
            {{- with .job.extraVolumes }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
{{- end }}
