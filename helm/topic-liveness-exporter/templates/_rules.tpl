{{- /* Alerts on jobs that the chart does not create. */ -}}
{{- define "liveness.alertsWithoutJob" -}}
{{- $alerts := list }}
{{- if not .Values.rollup.enabled }}
{{- $alerts = concat $alerts (list "TopicLivenessRollupLate" "TopicLivenessExpectationsStale") }}
{{- end }}
{{- if not (or .Values.report.enabled (and .Values.rollup.enabled (has "--report" .Values.rollup.args))) }}
{{- $alerts = concat $alerts (list "TopicLivenessReportLate" "TopicLivenessReportMissing") }}
{{- end }}
{{- toYaml $alerts }}
{{- end }}

{{- /* The rule groups of the files, with what the values change of them. */ -}}
{{- define "liveness.ruleGroups" -}}
{{- $values := .Values.prometheusRule }}
{{- $withoutJob := include "liveness.alertsWithoutJob" . | fromYamlArray }}
{{- $alerts := list }}
{{- $groups := list }}
{{- range list "recording" "alerts" }}
{{- $text := $.Files.Get (printf "files/%s.yaml" .) }}
{{- with $values.runbookUrl }}
{{- $text = $text | replace "runbook_url: runbook.md#" (printf "runbook_url: %s#" .) }}
{{- end }}
{{- range $group := (fromYaml $text).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- if not $rule.alert }}
{{- $rules = append $rules $rule }}
{{- else }}
{{- $alerts = append $alerts $rule.alert }}
{{- $changed := get ($values.rules | default dict) $rule.alert | default dict }}
{{- $default := ternary "false" "true" (has $rule.alert $withoutJob) }}
{{- if eq (get $changed "enabled" | toString | default $default) "true" }}
{{- with get $changed "for" }}
{{- $_ := set $rule "for" . }}
{{- end }}
{{- with get $changed "severity" }}
{{- /* Else series that differ in it would be one alert, which Prometheus refuses. */}}
{{- $_ := set $rule "expr" (printf "max without (severity) (%s)" $rule.expr) }}
{{- $_ := set $rule.labels "severity" . }}
{{- end }}
{{- $_ := set $rule "labels" (mergeOverwrite $rule.labels ($values.ruleLabels | default dict) (get $changed "labels" | default dict)) }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (dict "name" $group.name "rules" $rules) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $_ := $values.rules }}
{{- if not (has $name $alerts) }}
{{- fail (printf "prometheusRule.rules: no alert is named %q; the alerts are %s" $name ($alerts | uniq | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- toYaml $groups }}
{{- end }}
