package fallback

// counts counts the units of a window and of the window before it.
type counts struct {
	now, before int64 // units
	ends        int64 // ns; the end of the present window; 0: not begun
}

// enter begins the window of a time, if it has not begun.
func (c *counts) enter(s *Size, now int64) {
	if now < c.ends {
		return
	}
	if c.before = 0; c.ends > 0 && now < c.ends+s.Period {
		c.before = c.now
	}
	c.now = 0
	switch {
	case s.Ends > now && s.Ends <= now+s.Period:
		c.ends = s.Ends
	case c.ends == 0: // the latest possible end
		c.ends = now + s.Period
	default:
		c.ends += ((now-c.ends)/s.Period + 1) * s.Period
	}
}

// used returns the units that count at a time. Those of the window before fade.
func (c *counts) used(s *Size, now int64) float64 {
	used := float64(c.now)
	if s.Sliding {
		used += float64(c.before) * float64(max(0, min(s.Period, c.ends-now))) / float64(s.Period)
	}
	return used
}

// emptyAt returns the time (ns) from which nothing counts.
func (c *counts) emptyAt(s *Size, now int64) int64 {
	switch {
	case s.Sliding && c.now > 0:
		return c.ends + s.Period
	case c.now > 0 || s.Sliding && c.before > 0:
		return c.ends
	}
	return now
}

// wait returns the ns until at most so many units count.
func (c *counts) wait(s *Size, most, now int64) int64 {
	switch {
	case c.used(s, now) <= float64(most):
		return 1
	case !s.Sliding:
		return c.ends - now
	case c.now <= most: // the units of the window before must fade
		return c.ends - now - int64(float64(s.Period)*float64(most-c.now)/float64(c.before)) + 1
	}
	return c.ends - now + s.Period - int64(float64(s.Period)*float64(most)/float64(c.now)) + 1
}
