{{- /* How a monitor of the Prometheus operator scrapes the exporter: the alert rules know it by its job. */ -}}
{{- define "liveness.endpoint" -}}
{{- $service := .service }}
{{- with .monitor }}
{{- if and .basicAuth .authorization }}
{{- fail "a monitor has basicAuth and authorization: the operator refuses both at once. Set one of them to {}" }}
{{- end -}}
port: http
path: /metrics
scheme: {{ .scheme }}
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
honorLabels: {{ .honorLabels }}
{{- with .tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .authorization }}
authorization: {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  - {targetLabel: job, replacement: topic-liveness}
  {{- with $service }}
  - {targetLabel: service, replacement: {{ . }}}
  {{- end }}
  {{- with .relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* (dict "root" $ "kind" "ServiceMonitor" "monitor" .Values.serviceMonitor "endpoints" "endpoints") */ -}}
{{- define "liveness.monitor" -}}
{{- /* Prometheus gives it to targets of a ServiceMonitor by itself. */ -}}
{{- $service := ternary (include "liveness.fullname" .root) "" (eq .kind "PodMonitor") -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ .kind }}
metadata:
  name: {{ include "liveness.sharedName" (dict "root" .root "namespace" .monitor.namespace) }}
  namespace: {{ .monitor.namespace | default (include "liveness.namespace" .root) | quote }}
  labels: {{- include "liveness.labels" (dict "root" .root "further" .monitor.labels) | nindent 4 }}
  {{- with .monitor.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{ .endpoints }}:
    - {{- include "liveness.endpoint" (dict "monitor" .monitor "service" $service) | nindent 6 }}
  {{- with .monitor.attachMetadata }}
  attachMetadata: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $field := list "targetLabels" "podTargetLabels" "sampleLimit" "labelValueLengthLimit" }}
  {{- with get $.monitor $field }}
  {{ $field }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  namespaceSelector:
    matchNames: [{{ include "liveness.namespace" .root | quote }}]
  selector:
    matchLabels: {{- include "liveness.selector" .root | nindent 6 }}
      app.kubernetes.io/component: exporter
{{- end }}
