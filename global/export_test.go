package global

import "errors"

// Apart makes a limiter send a message for each tag, as on a Cluster.
func (l *Limiter) Apart() { l.runner.Apart(errors.New("CROSSSLOT")) }
