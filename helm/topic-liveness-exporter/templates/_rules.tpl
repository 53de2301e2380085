{{- define "liveness.topicKeys" -}}
cluster, namespace, job, kafka_cluster, topic
{{- end }}

{{- /* Topics that match an entry of prometheusRule.severities. */ -}}
{{- define "liveness.matchedTopics" -}}
{{- $matchers := list }}
{{- range $label, $pattern := .match }}
{{- $_ := mustRegexMatch $pattern "" }}
{{- $matchers = append $matchers (printf "%s=~%q" $label $pattern) }}
{{- end -}}
group by ({{ include "liveness.topicKeys" . }}) (kafka_topic_info{ {{- join ", " $matchers -}} })
{{- end }}

{{- /* Labels that prometheusRule.severities names, and neither kafka_topic_info, its target nor a relabeling has. */ -}}
{{- define "liveness.unknownLabels" -}}
{{- $known := list "kafka_cluster" "topic" "owner" "timestamp_type" "cleanup_policy" "remote_storage" "job" "instance" "namespace" "service" "pod" "container" "endpoint" "cluster" }}
{{- $open := false }}
{{- range $monitor := list .Values.serviceMonitor .Values.podMonitor }}
{{- if $monitor.enabled }}
{{- range concat $monitor.relabelings $monitor.metricRelabelings }}
{{- with .targetLabel }}
{{- $known = append $known . }}
{{- end }}
{{- if eq (.action | default "replace" | lower) "labelmap" }}
{{- $open = true }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $unknown := list }}
{{- range .Values.prometheusRule.severities }}
{{- range $label, $_ := .match }}
{{- if not (or $open (has $label $known)) }}
{{- $unknown = append $unknown $label }}
{{- end }}
{{- end }}
{{- end }}
{{- $unknown | uniq | join ", " }}
{{- end }}

{{- /* Alerts on jobs that the chart does not create. */ -}}
{{- define "liveness.alertsWithoutJob" -}}
{{- $alerts := list }}
{{- if not .Values.rollup.enabled }}
{{- $alerts = concat $alerts (list "TopicLivenessRollupLate" "TopicLivenessExpectationsStale") }}
{{- end }}
{{- if not (or .Values.report.enabled (and .Values.rollup.enabled (has "--report" .Values.rollup.args))) }}
{{- $alerts = append $alerts "TopicLivenessReportLate" }}
{{- end }}
{{- toYaml $alerts }}
{{- end }}

{{- /* The rule groups of the files, with what the values change of them. */ -}}
{{- define "liveness.ruleGroups" -}}
{{- $values := .Values.prometheusRule }}
{{- if or .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- with include "liveness.unknownLabels" . }}
{{- fail (printf "prometheusRule.severities: kafka_topic_info has no label %s; it has kafka_cluster, topic, owner, timestamp_type, cleanup_policy and remote_storage, and a label of your own needs a relabeling of the monitor with that targetLabel" .) }}
{{- end }}
{{- end }}
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
{{- if hasSuffix ":topic_liveness_severity:info" $rule.record }}
{{- $earlier := list }}
{{- range $entry := $values.severities }}
{{- $topics := include "liveness.matchedTopics" $entry }}
{{- $expr := $topics }}
{{- if $earlier }}
{{- $expr = printf "%s unless on (%s) (%s)" $topics (include "liveness.topicKeys" $) (join " or " $earlier) }}
{{- end }}
{{- $rules = append $rules (dict "record" $rule.record "expr" $expr "labels" (dict "severity" $entry.severity)) }}
{{- $earlier = append $earlier $topics }}
{{- end }}
{{- if $earlier }}
{{- $_ := set $rule "expr" (printf "%s unless on (%s) (%s)" $rule.expr (include "liveness.topicKeys" $) (join " or " $earlier)) }}
{{- end }}
{{- end }}
{{- $rules = append $rules $rule }}
{{- else }}
{{- $alerts = append $alerts $rule.alert }}
{{- $changed := get $values.rules $rule.alert | default dict }}
{{- $default := ternary "false" "true" (has $rule.alert $withoutJob) }}
{{- if eq (get $changed "enabled" | toString | default $default) "true" }}
{{- with get $changed "for" }}
{{- $_ := set $rule "for" . }}
{{- end }}
{{- with get $changed "severity" }}
{{- $_ := set $rule.labels "severity" . }}
{{- end }}
{{- $_ := set $rule "labels" (mergeOverwrite $rule.labels $values.ruleLabels (get $changed "labels" | default dict)) }}
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
