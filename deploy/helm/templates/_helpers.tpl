{{- define "tierstate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "tierstate" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-tierstate" (.Release.Name | trunc 30 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{- /* The labels that select pods. `list ROOT COMPONENT` is what most of these definitions are called with. */ -}}
{{- define "tierstate.selector" -}}
app.kubernetes.io/name: tierstate
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "tierstate.labels" -}}
{{ include "tierstate.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end -}}

{{- define "tierstate.image" -}}
{{- $root := index . 0 }}{{ $own := (index . 2).image | default dict -}}
{{ $own.repository | default $root.Values.image.repository }}:{{ $own.tag | default $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{- /* Pod Security "restricted" of a container. */ -}}
{{- define "tierstate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "tierstate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "tierstate.container" -}}
{{- $root := index . 0 }}{{ $own := index . 2 -}}
image: {{ include "tierstate.image" . }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- end -}}

{{- /* Variables of every process; the component's own follow, and those of the values come last. */ -}}
{{- define "tierstate.environment" -}}
- {name: TIERSTATE_CONFIG, value: /etc/tierstate/tierstate.toml}
- {name: TIERSTATE_LOG, value: json}
{{- end -}}

{{- /* `list VALUES SECRET`. */ -}}
{{- define "tierstate.envFrom" -}}
{{- if or (index . 1) (index . 0).envFrom }}
envFrom:
{{- with index . 1 }}
  - secretRef: {name: {{ . }}}
{{- end }}
{{- with (index . 0).envFrom }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Not empty if agents run in the brokers' pods. */ -}}
{{- define "tierstate.patchesBrokers" -}}
{{- if and (eq .Values.agent.source "disk") .Values.agent.patch }}yes{{ end -}}
{{- end -}}

{{- /* The bytes of a quantity as 8Gi. */ -}}
{{- define "tierstate.bytes" -}}
{{- $units := dict "" 1 "K" 1000 "Ki" 1024 "M" 1000000 "Mi" 1048576 "G" 1000000000 "Gi" 1073741824 "T" 1000000000000 "Ti" 1099511627776 -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[A-Za-z]*$" .)) -}}
{{- end -}}

{{- define "tierstate.settingsName" -}}
{{- if .Values.settings.toml -}}
{{ include "tierstate.fullname" . }}-settings
{{- else -}}
{{ required "give settings.toml or settings.existingConfigMap" .Values.settings.existingConfigMap }}
{{- end -}}
{{- end -}}

{{- /* Files of a component below /etc/tierstate: one folder, since nothing can be mounted into a ConfigMap's. */ -}}
{{- define "tierstate.sources" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $own := index . 2 -}}
- configMap: {name: {{ include "tierstate.settingsName" $root }}}
{{- with $root.Values.secrets.tls }}
- secret: {name: {{ . }}, items: [{key: {{ $root.Values.secrets.caKey }}, path: tls/ca.pem}]}
{{- end }}
{{- with $own.tls }}
{{- if .enabled }}
- secret:
    name: {{ .secret }}
    items:
      - {key: {{ .certificateKey }}, path: tls/{{ $name }}.pem}
      - {key: {{ .privateKeyKey }}, path: tls/{{ $name }}.key}
{{- end }}
{{- end }}
{{- with $own.tokens }}
{{- if .enabled }}
- secret: {name: {{ .secret }}, items: [{key: {{ .key }}, path: tls/tokens}]}
{{- end }}
{{- end }}
{{- range $own.files }}
- secret: {name: {{ .secret }}, items: [{key: {{ .key }}, path: {{ .path }}}]}
{{- end }}
{{- end -}}

{{- define "tierstate.podMetadata" -}}
{{- $root := index . 0 }}{{ $own := index . 2 -}}
labels:
  {{- include "tierstate.selector" . | nindent 2 }}
{{- if or $root.Values.settings.toml $own.podAnnotations }}
annotations:
{{- with $root.Values.settings.toml }}
  tierstate/settings-sum: {{ sha256sum . }}
{{- end }}
{{- with $own.podAnnotations }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Where a pod may run, and as whom. */ -}}
{{- define "tierstate.scheduling" -}}
{{- $root := index . 0 }}{{ $own := index . 2 -}}
{{- with $own.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - {name: {{ . }}}
{{- end }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if $own.spreadOver }}
topologySpreadConstraints:
{{- range $own.spreadOver }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "tierstate.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tierstate.livenessProbe" -}}
httpGet: {path: /healthz, port: tierstate}
periodSeconds: 10
timeoutSeconds: 5
failureThreshold: 6
{{- end -}}

{{- define "tierstate.disruptionBudget" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $own := index . 2 -}}
{{- if and $own.podDisruptionBudget.enabled (gt (int $own.replicas) 1) -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "tierstate.fullname" $root }}-{{ $name }}
  labels: {{ include "tierstate.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $own.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {{ include "tierstate.selector" . | nindent 6 }}
{{- end }}
{{- end -}}
