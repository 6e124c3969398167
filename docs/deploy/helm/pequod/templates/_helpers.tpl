{{- define "pequod.labels" -}}
app.kubernetes.io/name: pequod
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The labels by which the pods of a kind of server are found: (list $ "home") */}}
{{- define "pequod.selector" -}}
app.kubernetes.io/name: pequod
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "pequod.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where the map is. */}}
{{- define "pequod.place" -}}
etcd:{{ join "," .Values.cluster.etcd }}/{{ .Values.cluster.name | default .Release.Name }}
{{- end }}

{{/* Settings as variables; numbers of YAML come as floats, which would be written as 1e+06. */}}
{{- define "pequod.variables" -}}
{{- range $name, $value := . }}
PEQUOD_{{ upper $name }}: {{ if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ int64 $value | quote }}{{ else }}{{ toString $value | quote }}{{ end }}
{{- end }}
{{- end }}

{{/* What all servers of a pod have in their environment, beside the map of settings. */}}
{{- define "pequod.environment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: PEQUOD_CLUSTER_ID
  value: $(POD_NAME)
{{- end }}

{{- define "pequod.volumeMounts" -}}
{{- if or .Values.access.text .Values.access.secret }}
- {name: access, mountPath: /etc/pequod/access, readOnly: true}
{{- end }}
{{- if .Values.access.tokenSecret }}
- {name: token, mountPath: /etc/pequod/token, readOnly: true}
{{- end }}
{{- if .Values.tls.secret }}
- {name: tls, mountPath: /etc/pequod/tls, readOnly: true}
{{- end }}
{{- if .Values.cluster.passwordSecret }}
- {name: etcd, mountPath: /etc/pequod/etcd, readOnly: true}
{{- end }}
{{- end }}

{{- define "pequod.volumes" -}}
{{- if or .Values.access.text .Values.access.secret }}
- name: access
  secret: {secretName: {{ .Values.access.secret | default (printf "%s-access" .Release.Name) }}, defaultMode: 0440}
{{- end }}
{{- if .Values.access.tokenSecret }}
- name: token
  secret: {secretName: {{ .Values.access.tokenSecret }}, defaultMode: 0440}
{{- end }}
{{- if .Values.tls.secret }}
- name: tls
  secret: {secretName: {{ .Values.tls.secret }}, defaultMode: 0440}
{{- end }}
{{- if .Values.cluster.passwordSecret }}
- name: etcd
  secret: {secretName: {{ .Values.cluster.passwordSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "pequod.ports" -}}
- {name: grpc, containerPort: {{ .Values.service.port }}}
- {name: metrics, containerPort: {{ .Values.metrics.port }}}
{{- end }}

{{/* A server that starts waits for etcd, its map and its database; it is alive as long as its event loop runs. */}}
{{- define "pequod.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "pequod.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "pequod.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "pequod.placing" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
