{{- /* What the exporter's pod and those of the jobs share. */ -}}
{{- define "liveness.pod" -}}
serviceAccountName: {{ include "liveness.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{- define "liveness.volumes" -}}
- name: config
  {{- if .Values.existingSecret }}
  secret: {secretName: {{ .Values.existingSecret }}, defaultMode: 0440}
  {{- else }}
  configMap: {name: {{ include "liveness.fullname" . }}}
  {{- end }}
- name: history
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim: {claimName: {{ include "liveness.claim" . }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- end }}

{{- define "liveness.mounts" -}}
- {name: config, mountPath: /etc/topic-liveness, readOnly: true}
- {name: history, mountPath: /var/lib/topic-liveness}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- /* A configuration that the chart does not see: what it must know of it is set over it. */ -}}
{{- define "liveness.env" -}}
{{- if .Values.existingSecret }}
- {name: TOPIC_LIVENESS_EXPORTER, value: {{ include "liveness.fullname" . }}}
- {name: TOPIC_LIVENESS_HISTORY__FOLDER, value: /var/lib/topic-liveness}
- {name: TOPIC_LIVENESS_WEB__LISTEN, value: "0.0.0.0:9797"}
{{- end }}
{{- end }}

{{- define "liveness.needsHistory" -}}
{{- if not .root.Values.persistence.enabled }}
{{- fail (printf "%s.enabled needs persistence.enabled: the job reads the history that the exporter keeps. Set persistence.enabled=true, or %s.enabled=false" .verb .verb) }}
{{- end }}
{{- end }}

{{- /* A Spark job on the history: (dict "root" $ "verb" "rollup" "job" .Values.rollup) */ -}}
{{- define "liveness.job" -}}
{{- $root := .root -}}
{{- include "liveness.needsHistory" . -}}
{{- $deliver := and (eq .verb "report") $root.Values.delivery.enabled -}}
{{- if and $deliver (not $root.Values.existingSecret) (not (dig "delivery" "recipients" list $root.Values.config)) }}
{{- fail "delivery.enabled needs config.delivery.recipients: they say who is sent the report" }}
{{- end -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "liveness.fullname" $root }}-{{ .verb }}
  namespace: {{ include "liveness.namespace" $root }}
  labels: {{- include "liveness.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .verb }}
spec:
  schedule: {{ .job.schedule | quote }}
  timeZone: Etc/UTC
  suspend: {{ .job.suspend }}
  concurrencyPolicy: {{ .job.concurrencyPolicy }}
  startingDeadlineSeconds: {{ .job.startingDeadlineSeconds }}
  successfulJobsHistoryLimit: {{ .job.successfulJobsHistoryLimit }}
  failedJobsHistoryLimit: {{ .job.failedJobsHistoryLimit }}
  jobTemplate:
    spec:
      backoffLimit: {{ .job.backoffLimit }}
      activeDeadlineSeconds: {{ .job.activeDeadlineSeconds }}
      template:
        metadata:
          labels: {{- include "liveness.selector" $root | nindent 12 }}
            app.kubernetes.io/component: {{ .verb }}
          {{- with .job.podAnnotations }}
          annotations: {{- toYaml . | nindent 12 }}
          {{- end }}
        spec:
          restartPolicy: Never
          {{- include "liveness.pod" $root | nindent 10 }}
          {{- if has "ReadWriteOnce" $root.Values.persistence.accessModes }}
          affinity:
            podAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                - topologyKey: kubernetes.io/hostname
                  labelSelector:
                    matchLabels: {{- include "liveness.selector" $root | nindent 22 }}
                      app.kubernetes.io/component: exporter
          {{- end }}
          containers:
            - name: {{ .verb }}
              image: {{ include "liveness.image" $root }}
              imagePullPolicy: {{ $root.Values.image.pullPolicy }}
              args: {{- concat (list .verb "--config" "/etc/topic-liveness/config.yaml") (ternary (list "--deliver") list $deliver) .job.args | toYaml | nindent 16 }}
              env:
                - {name: HOME, value: /tmp}
                {{- include "liveness.env" $root | nindent 16 }}
                {{- with .job.extraEnv }}
                {{- toYaml . | nindent 16 }}
                {{- end }}
              resources: {{- toYaml .job.resources | nindent 16 }}
              securityContext: {{- toYaml $root.Values.securityContext | nindent 16 }}
              volumeMounts: {{- include "liveness.mounts" $root | nindent 16 }}
                {{- if and $deliver $root.Values.delivery.existingSecret }}
                - {name: delivery, mountPath: /run/secrets/delivery, readOnly: true}
                {{- end }}
          volumes: {{- include "liveness.volumes" $root | nindent 12 }}
            {{- if and $deliver $root.Values.delivery.existingSecret }}
            - name: delivery
              secret: {secretName: {{ $root.Values.delivery.existingSecret }}, defaultMode: 0440}
            {{- end }}
{{- end }}
