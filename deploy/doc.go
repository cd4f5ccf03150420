// Package deploy has no code. Its tests read the manifests, the compose file and the Dockerfile of this folder.
package deploy
