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
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "liveness.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "liveness.volumes" -}}
- name: config
  configMap: {name: {{ include "liveness.fullname" . }}}
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

{{- /* A Spark job on the history: (dict "root" $ "verb" "rollup" "job" .Values.rollup) */ -}}
{{- define "liveness.job" -}}
{{- $root := .root -}}
{{- if not $root.Values.persistence.enabled }}
{{- fail (printf "%s.enabled needs persistence.enabled: the job reads the history that the exporter keeps. Set persistence.enabled=true, or %s.enabled=false" .verb .verb) }}
{{- end -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "liveness.fullname" $root }}-{{ .verb }}
  labels: {{- include "liveness.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .verb }}
spec:
  schedule: {{ .job.schedule | quote }}
  timeZone: Etc/UTC
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 3600
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: {{ .job.activeDeadlineSeconds }}
      template:
        metadata:
          labels: {{- include "liveness.selector" $root | nindent 12 }}
            app.kubernetes.io/component: {{ .verb }}
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
              args: {{- concat (list .verb "--config" "/etc/topic-liveness/config.yaml") .job.args | toYaml | nindent 16 }}
              env:
                - {name: HOME, value: /tmp}
              resources: {{- toYaml .job.resources | nindent 16 }}
              securityContext: {{- include "liveness.containerSecurity" $root | nindent 16 }}
              volumeMounts: {{- include "liveness.mounts" $root | nindent 16 }}
          volumes: {{- include "liveness.volumes" $root | nindent 12 }}
{{- end }}
