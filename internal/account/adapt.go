package account

// exactLevel is how far a level may be from 0: Lua counts it in a float64.
const exactLevel = 1 << 52

// Adapt gives the key another plan, of a limit that counts. Call Begin before. What was used stays used; the level refills at
// the old rate until the new limit came into force, as it does in Redis. f is the fallback bucket of the old plan.
func (a *Account) Adapt(old, p *Plan, f Fallback, now int64) {
	if a.local.started {
		a.local.refill(f, now)
	}
	if old.Limit == p.Limit {
		return
	}
	a.refusal = Refusal{}
	v := &a.view
	if old.Kind != p.Kind || p.Window.Period > 0 || Static(old.Limit) || Static(p.Limit) {
		*v, a.used = view{}, true // of another window
		a.window = 0
		for i := range a.refunds {
			a.refunds[i].at = 0
		}
		return
	}
	from := max(v.received, p.Began)
	if p.Began == 0 || p.From == FromCall {
		from = max(v.received, now)
	}
	passed := (from - v.received) / 1000
	was := old.Bucket
	if from-v.received < ledgerMemory {
		was.Cap = v.cap
	}
	if passed > exactLevel/p.Bucket.Refill { // too long for a level to count
		*v, a.used = view{}, true
		return
	}
	v.level, v.cap = p.Bucket.Convert(was.Fill(v.level, passed), old.Bucket), p.Bucket.Convert(v.cap, old.Bucket)
	v.nextPoll, v.relook = 0, 0         // what the view proved, it proved of the old limit
	v.level -= passed * p.Bucket.Refill // as if the level had been refilled at the new rate all the time
}
