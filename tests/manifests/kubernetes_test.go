package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/services/denylist"
	"github.com/ccnq/ccnq/services/edge"
	coordinator "github.com/ccnq/ccnq/services/queue-coordinator"
)

// cluster is everything that an overlay makes.
type cluster struct {
	namespaces  map[string]*corev1.Namespace
	configs     map[string]*corev1.ConfigMap
	services    map[string]*corev1.Service
	deployments map[string]*appsv1.Deployment
	jobs        map[string]*batchv1.Job
	budgets     map[string]*policyv1.PodDisruptionBudget
	autoscalers map[string]*autoscalingv2.HorizontalPodAutoscaler
	networks    map[string]*networkingv1.NetworkPolicy
}

// build does what kustomize does. A field or kind that the API does not know
// fails the test.
func build(t *testing.T, dir string) cluster {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	c := cluster{
		map[string]*corev1.Namespace{}, map[string]*corev1.ConfigMap{}, map[string]*corev1.Service{}, map[string]*appsv1.Deployment{},
		map[string]*batchv1.Job{}, map[string]*policyv1.PodDisruptionBudget{}, map[string]*autoscalingv2.HorizontalPodAutoscaler{},
		map[string]*networkingv1.NetworkPolicy{},
	}
	for _, object := range objects.Resources() {
		text, err := object.AsYAML()
		require.NoError(t, err)
		switch kind := object.GetGvk().ApiVersion() + " " + object.GetKind(); kind {
		case "v1 Namespace":
			keep(t, c.namespaces, text)
		case "v1 ConfigMap":
			keep(t, c.configs, text)
		case "v1 Service":
			keep(t, c.services, text)
		case "apps/v1 Deployment":
			keep(t, c.deployments, text)
		case "batch/v1 Job":
			keep(t, c.jobs, text)
		case "policy/v1 PodDisruptionBudget":
			keep(t, c.budgets, text)
		case "autoscaling/v2 HorizontalPodAutoscaler":
			keep(t, c.autoscalers, text)
		case "networking.k8s.io/v1 NetworkPolicy":
			keep(t, c.networks, text)
		default:
			require.Fail(t, "an object of no known kind", "%s %s", kind, object.GetName())
		}
	}
	return c
}

// keep decodes an object strictly.
func keep[T any, O interface {
	*T
	metav1.Object
}](t *testing.T, into map[string]O, text []byte) {
	t.Helper()
	object := O(new(T))
	require.NoError(t, yaml.UnmarshalStrict(text, object), "%s", text)
	require.NotContains(t, into, object.GetName())
	into[object.GetName()] = object
}

// pods are the templates by the name of what makes them.
func (c cluster) pods() map[string]corev1.PodTemplateSpec {
	pods := map[string]corev1.PodTemplateSpec{}
	for name, d := range c.deployments {
		pods[name] = d.Spec.Template
	}
	for name, j := range c.jobs {
		pods[name] = j.Spec.Template
	}
	return pods
}

func TestKubernetes_Deployments(t *testing.T) {
	t.Parallel()
	c := build(t, "../../deploy/kubernetes/overlays/example")
	require.Len(t, c.namespaces, 1)
	require.ElementsMatch(t, []string{"denylist", "edge", "queue-coordinator"}, slices.Collect(maps.Keys(c.deployments)))
	for name, d := range c.deployments {
		selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		require.NoError(t, err)
		require.True(t, selector.Matches(labels.Set(d.Spec.Template.Labels)), name)
		require.Equal(t, "ccnq", d.Namespace)

		container := d.Spec.Template.Spec.Containers[0]
		require.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path, name)
		require.Equal(t, "/healthz", container.LivenessProbe.HTTPGet.Path, name)
		require.Equal(t, "/healthz", container.StartupProbe.HTTPGet.Path, name)
		for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe, container.StartupProbe} {
			require.Equal(t, "admin", probe.HTTPGet.Port.StrVal)
		}

		budget := c.budgets[name]
		require.NotNil(t, budget, name)
		selector, err = metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		require.NoError(t, err)
		require.True(t, selector.Matches(labels.Set(d.Spec.Template.Labels)), name)
	}
	require.Nil(t, c.deployments["edge"].Spec.Replicas, "the autoscaler's")
	require.Equal(t, "edge", c.autoscalers["edge"].Spec.ScaleTargetRef.Name)
	require.Equal(t, "Deployment", c.autoscalers["edge"].Spec.ScaleTargetRef.Kind)
	require.NotEmpty(t, c.deployments["edge"].Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(), "what utilization is measured by")
	require.Equal(t, labels.Set{"app.kubernetes.io/name": "edge"}, labels.Set(c.services["edge"].Spec.Selector))
	require.Equal(t, "http", c.services["edge"].Spec.Ports[0].TargetPort.StrVal)
}

func TestKubernetes_PodsAreConfined(t *testing.T) {
	t.Parallel()
	c := build(t, "../../deploy/kubernetes/overlays/example")
	secrets := map[string]bool{"ccnq-edge": true, "ccnq-coordinator": true, "ccnq-denylist": true, "ccnq-migrate": true}
	for name, pod := range c.pods() {
		spec := pod.Spec
		require.False(t, *spec.EnableServiceLinks, name)
		require.False(t, *spec.AutomountServiceAccountToken, name)
		require.True(t, *spec.SecurityContext.RunAsNonRoot, name)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, name)
		require.Len(t, spec.Containers, 1)
		container := spec.Containers[0]
		require.True(t, strings.HasPrefix(container.Image, "registry.example/ccnq/"), container.Image)
		require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, name)
		require.False(t, *container.SecurityContext.AllowPrivilegeEscalation, name)
		require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop, name)
		require.False(t, container.Resources.Limits.Memory().IsZero(), name)

		volumes := map[string]corev1.Volume{}
		for _, v := range spec.Volumes {
			volumes[v.Name] = v
			if v.Secret != nil {
				require.True(t, secrets[v.Secret.SecretName], v.Secret.SecretName)
				require.EqualValues(t, 0o440, *v.Secret.DefaultMode)
			}
			if v.ConfigMap != nil {
				require.Contains(t, c.configs, v.ConfigMap.Name, "kustomize has put its own name in")
			}
		}
		for _, m := range container.VolumeMounts {
			require.Contains(t, volumes, m.Name, name)
		}
		covered := false
		for _, policy := range c.networks {
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			require.NoError(t, err)
			covered = covered || selector.Matches(labels.Set(pod.Labels))
		}
		require.True(t, covered, "%s has no network policy", name)
	}
	require.NotNil(t, findVolume(t, c, "cache").EmptyDir)
	require.NotNil(t, findVolume(t, c, "data").EmptyDir)
}

func findVolume(t *testing.T, c cluster, name string) corev1.Volume {
	t.Helper()
	for _, v := range c.deployments["edge"].Spec.Template.Spec.Volumes {
		if v.Name == name {
			return v
		}
	}
	require.Fail(t, "no volume "+name)
	return corev1.Volume{}
}

// migration is the configuration of ccnq migrate.
type migration struct{ Postgres postgres.Config }

// The programs take the environment that they are given: no name is unknown, no
// value wrong.
func TestKubernetes_EnvironmentIsUnderstood(t *testing.T) {
	t.Parallel()
	c := build(t, "../../deploy/kubernetes/overlays/example")
	for name, cfg := range map[string]any{
		"edge": &edge.Config{}, "queue-coordinator": &coordinator.Config{}, "denylist": &denylist.Config{}, "migrate": &migration{},
	} {
		container := c.pods()[name].Spec.Containers[0]
		env := map[string]string{}
		for _, from := range container.EnvFrom {
			require.Contains(t, c.configs, from.ConfigMapRef.Name, name)
			maps.Copy(env, c.configs[from.ConfigMapRef.Name].Data)
		}
		for _, v := range container.Env {
			env[v.Name] = v.Value
			if v.ValueFrom != nil {
				require.Equal(t, "metadata.name", v.ValueFrom.FieldRef.FieldPath)
				env[v.Name] = "edge-6d5f8c7b9d-x2x7k"
			}
		}
		// The files of the pod are not here.
		if _, ok := env["CCNQ_PG_PASSWORD_FILE"]; ok {
			delete(env, "CCNQ_PG_PASSWORD_FILE")
			env["CCNQ_PG_PASSWORD"] = "secret"
		}
		require.NoError(t, config.Load(environ(env), cfg), name)
	}
	var edgeConfig edge.Config
	env := maps.Clone(c.configs[c.pods()["edge"].Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name].Data)
	env["CCNQ_QUEUE_RULES_FILE"] = "rules.json"
	require.NoError(t, config.Load(environ(env), &edgeConfig))
	grace := c.pods()["edge"].Spec.TerminationGracePeriodSeconds
	require.Greater(t, float64(*grace), edgeConfig.StopTimeout().Seconds(), "an edge is given the time that it may take to stop")
}

func environ(env map[string]string) []string {
	var out []string
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	return out
}
