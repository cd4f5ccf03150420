package server

import (
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestFlagsOfManifests reads the flags in the manifests of deploy/, which is a module that cannot parse them.
func TestFlagsOfManifests(t *testing.T) {
	read := func(name string, into any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", name))
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct{ Containers []struct{ Args []string } }
			}
		}
	}
	read("kustomize/base/deployment.yaml", &deployment)
	var compose struct {
		Services map[string]struct{ Command []string }
	}
	read("compose/compose.yaml", &compose)
	for name, args := range map[string][]string{
		"kustomize": deployment.Spec.Template.Spec.Containers[0].Args, "compose": compose.Services["hybridlimit"].Command,
	} {
		s, err := ParseFlags(args, func(string) string { return "" }, t.Output())
		if err != nil || s.Config != "/rules" || s.GRPC != ":8081" || s.HTTP != ":8080" {
			t.Errorf("%s: %q: %v, %+v", name, args, err, s)
		}
		if name == "kustomize" && s.Age.Most.Minutes() != 5 {
			t.Errorf("clients connect anew after %v, and deploy/README.md says 5 minutes", s.Age.Most)
		}
	}
}
