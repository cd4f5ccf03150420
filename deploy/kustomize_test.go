package deploy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/hybridlimit/hybridlimit/rls"
)

// objects are what kubectl kustomize renders, by name.
type objects struct {
	deployments map[string]*apps.Deployment
	services    map[string]*core.Service
	maps        map[string]*core.ConfigMap
	secrets     map[string]*core.Secret
	budgets     map[string]*policy.PodDisruptionBudget
	scalers     map[string]*autoscaling.HorizontalPodAutoscaler
	namespaces  map[string]*core.Namespace
}

// rendered renders a folder, and decodes each object strictly: an unknown field is an error.
func rendered(t *testing.T, folder string) (o objects) {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		switch r.GetKind() {
		case "Deployment":
			err = add(&o.deployments, r.GetName(), text)
		case "Service":
			err = add(&o.services, r.GetName(), text)
		case "ConfigMap":
			err = add(&o.maps, r.GetName(), text)
		case "Secret":
			err = add(&o.secrets, r.GetName(), text)
		case "PodDisruptionBudget":
			err = add(&o.budgets, r.GetName(), text)
		case "HorizontalPodAutoscaler":
			err = add(&o.scalers, r.GetName(), text)
		case "Namespace":
			err = add(&o.namespaces, r.GetName(), text)
		default:
			err = errors.New("an unknown kind")
		}
		if err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
	}
	return o
}

// add decodes an object.
func add[T any](to *map[string]*T, name string, text []byte) error {
	one := new(T)
	if *to == nil {
		*to = map[string]*T{}
	}
	(*to)[name] = one
	return yaml.UnmarshalStrict(text, one)
}

// TestBase checks what ties the objects together: labels, ports, names, and the times of the end.
func TestBase(t *testing.T) {
	o := rendered(t, "kustomize/base")
	d, s := o.deployments["hybridlimit"], o.services["hybridlimit"]
	pod := d.Spec.Template
	c := pod.Spec.Containers[0]
	labels := pod.Labels
	if len(labels) == 0 || !covers(d.Spec.Selector.MatchLabels, labels) || !covers(s.Spec.Selector, labels) || !covers(o.budgets["hybridlimit"].Spec.Selector.MatchLabels, labels) {
		t.Errorf("selectors: %v %v %v, labels %v", d.Spec.Selector, s.Spec.Selector, o.budgets, labels)
	}
	if spread := pod.Spec.TopologySpreadConstraints[0]; !covers(spread.LabelSelector.MatchLabels, labels) {
		t.Errorf("the pods are not spread: %v", spread)
	}
	if s.Spec.ClusterIP != core.ClusterIPNone {
		t.Errorf("the Service has a cluster IP %q: Envoy's connections would stay with one replica", s.Spec.ClusterIP)
	}
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range s.Spec.Ports {
		if ports[p.TargetPort.StrVal] != p.Port {
			t.Errorf("port %d of the Service is %q, and the container has %v", p.Port, p.TargetPort.StrVal, ports)
		}
	}
	if h := o.scalers["hybridlimit"]; h.Spec.ScaleTargetRef.Name != d.Name || *h.Spec.MinReplicas < 2 || d.Spec.Replicas != nil {
		t.Errorf("%+v, replicas %v", h.Spec, d.Spec.Replicas)
	}
	if c.ReadinessProbe.HTTPGet.Path != "/healthcheck" || ports[c.ReadinessProbe.HTTPGet.Port.StrVal] != 8080 || ports[c.LivenessProbe.TCPSocket.Port.StrVal] == 0 {
		t.Errorf("probes: %v, %v", c.ReadinessProbe, c.LivenessProbe)
	}
	if stop := c.Lifecycle.PreStop.Sleep.Seconds; *pod.Spec.TerminationGracePeriodSeconds < stop+10+5+1 {
		t.Errorf("%d s are too few for %d s of preStop, 10 s of -drain, 5 s for the counts and 1 s for pages", *pod.Spec.TerminationGracePeriodSeconds, stop)
	}
	if sec := c.SecurityContext; !*sec.ReadOnlyRootFilesystem || *sec.AllowPrivilegeEscalation || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("%+v", sec)
	}
	volume := pod.Spec.Volumes[0]
	rules, ok := o.maps[volume.ConfigMap.Name]
	if !ok || !slices.Contains(c.Args, "-config="+c.VolumeMounts[0].MountPath) {
		t.Errorf("no rules: %v of %v, %v", volume, o.maps, c.Args)
	}
	if !strings.HasSuffix(c.Image, ":v0.1.0") || !strings.Contains(c.Image, "/hybridlimit-rls") {
		t.Errorf("image %s", c.Image)
	}
	valid(t, rules.Data)
}

// TestExample renders the overlay to copy.
func TestExample(t *testing.T) {
	o := rendered(t, "kustomize/overlays/example")
	d := o.deployments["hybridlimit"]
	text, err := os.ReadFile("kustomize/overlays/example/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := strings.ReplaceAll(string(text), "newName: registry.example.com", "newName: mine")
	files := filesys.MakeFsInMemory()
	copied(t, files, "kustomize")
	if err := files.WriteFile("kustomize/overlays/example/kustomization.yaml", []byte(named)); err != nil {
		t.Fatal(err)
	}
	if all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "kustomize/overlays/example"); err != nil {
		t.Error(err)
	} else if text, err := all.AsYaml(); err != nil || !strings.Contains(string(text), "image: mine/hybridlimit-rls:v0.1.0") {
		t.Errorf("the image is another one: %v\n%s", err, text)
	}
	if d.Namespace != "hybridlimit" || o.namespaces[d.Namespace] == nil {
		t.Errorf("namespace %q, %v", d.Namespace, o.namespaces)
	}
	ref := d.Spec.Template.Spec.Containers[0].Env[0].ValueFrom.SecretKeyRef
	secret := o.secrets[ref.Name] // its name has a hash
	if secret == nil || string(secret.Data[ref.Key]) != "redis://redis:6379" {
		t.Errorf("the Deployment reads %v, and the Secret is %v", ref, secret)
	}
	redis := o.services["redis"]
	if redis.Spec.Ports[0].Port != 6379 || !covers(redis.Spec.Selector, o.deployments["redis"].Spec.Template.Labels) {
		t.Errorf("%+v", redis.Spec)
	}
	if data := o.maps["hybridlimit-rules"].Data; !strings.Contains(data["rules.yaml"], "unit: second") {
		t.Errorf("the rules are those of the base: %v", data)
	}
	valid(t, o.maps["hybridlimit-rules"].Data)
}

// copied copies a folder.
func copied(t *testing.T, to filesys.FileSystem, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		return errors.Join(err, to.WriteFile(name, text))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// covers reports whether labels have all that a selector wants, and whether it wants any.
func covers(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// valid reads rules.
func valid(t *testing.T, data map[string]string) {
	t.Helper()
	var files []rls.File
	for name, text := range data {
		files = append(files, rls.File{Name: name, Data: []byte(text)})
	}
	set, err := rls.ParseRules(files, false)
	if err != nil || len(set.Rules()) == 0 || len(set.Warnings()) > 0 {
		t.Errorf("%v, %v", err, set)
	}
}
