package permits

// UseWhatItGives is a mutant: permits that an op gives back are used while the answer is on its way.
func (h *Holding) UseWhatItGives(before int64) { h.permits = before }

// UseAll is a mutant: all booked permits are used, also above the limit.
func (h *Holding) UseAll() { h.permits = h.booked }

// TakeSession is a mutant: a holding of an earlier session is used as it is.
func (h *Holding) TakeSession(c *Conditions) { h.session, h.permits = c.Session, h.booked }

// SaysItHad is a mutant: an op after a lost one says that Redis has what the last answer booked.
func (h *Holding) SaysItHad() int64 { return h.booked }
