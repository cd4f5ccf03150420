package account

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	_ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
)

func TestCreditRule(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*Account, *Conditions)
		now   int64
		want  int64
	}{
		{"the view has less than C", func(s *Account, _ *Conditions) { s.view.level = 250_000 }, sec, 2},
		{"C is less than the view", func(*Account, *Conditions) {}, sec, 4},
		{"pending is owed", func(s *Account, _ *Conditions) { s.pending = 3 }, sec, 1},
		{"in flight is owed", func(s *Account, _ *Conditions) { s.inflight, s.pending = 2, 1 }, sec, 1},
		{"owed comes off the view too", func(s *Account, _ *Conditions) { s.view.level, s.pending = 250_000, 1 }, sec, 1},
		{"refill counts from receipt", func(s *Account, _ *Conditions) { s.view.level = 0 }, sec + 100*ms - 1000, 0},
		{"and is whole units", func(s *Account, _ *Conditions) { s.view.level = 0 }, sec + 100*ms, 1},
		{"up to a full bucket", func(_ *Account, t *Conditions) { t.Credit = 99 }, 100 * sec, 10},
		{"C shrank below what is owed", func(s *Account, t *Conditions) { s.pending, t.Credit = 4, 2 }, sec, 0},
		{"none while asks are in flight", func(s *Account, _ *Conditions) { s.asked = true }, sec, 0},
		{"none before the fallback has settled", func(s *Account, _ *Conditions) { s.local.admitted = 1 }, sec, 0},
		{"none without C", func(_ *Account, t *Conditions) { t.Credit = 0 }, sec, 0},
		{"none without a view", func(s *Account, _ *Conditions) { s.view = view{} }, sec, 0},
		{"as if full where nothing was forgotten", func(s *Account, t *Conditions) { s.view, t.Blind = view{}, true }, sec, 4},
		{"held units are no credit", func(s *Account, _ *Conditions) { s.view.level, s.leases[0] = 0, lease{units: 9, end: 9 * sec} }, sec, 0},
	} {
		terms := stepTerms()
		s := seen(terms, 7)
		tc.alter(&s, terms)
		if got := s.CreditLeft(terms, tc.now); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*Account, *Conditions)
		n     int64
		want  Verdict
	}{
		{"a lease first", func(s *Account, _ *Conditions) { s.leases[0] = lease{units: 3, end: 9 * sec} }, 3, Verdict{Action: Admit, Source: hybridlimit.SourceLease, Reason: InHand}},
		{"credit next", func(*Account, *Conditions) {}, 1, Verdict{Action: Admit, Source: hybridlimit.SourceCredit, Reason: OnCredit, Sync: SyncLazily}},
		{"the last unit of C makes no sync urgent", func(*Account, *Conditions) {}, 4, Verdict{Action: Admit, Source: hybridlimit.SourceCredit, Reason: OnCredit, Sync: SyncLazily}},
		{
			"but if more calls are likely", func(s *Account, _ *Conditions) { s.demand = demand{young: 0.37, at: sec, sum: 20, sq: 20} }, 4,
			Verdict{Action: Admit, Source: hybridlimit.SourceCredit, Reason: OnCredit, Sync: SyncNow},
		},
		{"or if calls never wait", func(_ *Account, t *Conditions) { t.MaxWait = -1 }, 4, Verdict{Action: Admit, Source: hybridlimit.SourceCredit, Reason: OnCredit, Sync: SyncNow}},
		{"one unit of C left does not", func(*Account, *Conditions) {}, 3, Verdict{Action: Admit, Source: hybridlimit.SourceCredit, Reason: OnCredit, Sync: SyncLazily}},
		{"so does K", func(_ *Account, t *Conditions) { t.Every = 1 }, 1, Verdict{Action: Admit, Source: hybridlimit.SourceCredit, Reason: OnCredit, Sync: SyncNow}},
		{"beyond credit: ask", func(*Account, *Conditions) {}, 5, Verdict{Action: Ask, Reason: WaitsForRedis, Asks: MoreThanThere, Sync: SyncNow}},
		{"credit for one is none for two", func(s *Account, _ *Conditions) { s.view.level = 190_000; s.view.sent = 0 }, 2, Verdict{Action: Ask, Reason: WaitsForRedis, Asks: MoreThanThere, Sync: SyncNow}},
		{
			"a proof denies: the units are there for sure from the receipt, less what is owed", func(s *Account, _ *Conditions) { s.view.level, s.pending = 100_000, 1 }, 1,
			Verdict{Action: Deny, Source: hybridlimit.SourceDenyCache, Reason: Proved, Retry: 100 * ms},
		},
		{"until it is time to look again", func(s *Account, _ *Conditions) { s.view.level, s.view.relook = 0, sec }, 1, Verdict{Action: Ask, Reason: WaitsForRedis, Asks: ViewTooSmall, Sync: SyncNow}},
	} {
		terms := stepTerms()
		s := seen(terms, 7)
		tc.alter(&s, terms)
		if got := s.Call(terms, tc.n, sec); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// A denial ends no later than Redis would end it. Redis knows no debt beyond a whole burst. Regression: the denial lasted
// longer by the refill of one burst.
func TestAProofEndsAtTheFloor(t *testing.T) {
	terms := stepTerms()
	s := seen(terms, -10)
	s.pending = 10
	if got := s.ProvedUntil(terms, 1) - s.view.sent; got != 1100*ms {
		t.Errorf("one unit is denied for %v, want 1.1s", time.Duration(got))
	}
}

func TestMayBeFull(t *testing.T) {
	const full, never = 10 * sec, -1
	for _, tc := range []struct {
		born, evicted, now int64
		want               bool
	}{
		{0, never, 2*full - 1, false}, // Regression: it was true after one time to full. The key may be in debt then.
		{0, never, 2 * full, true},
		{5, never, 2 * full, false},
		{0, full, 3*full - 1, false},
		{0, full, 3 * full, true},
		{0, 0, 2*full - 1, false},
	} {
		if got := MayBeFull(full, tc.born, tc.evicted, tc.now); got != tc.want {
			t.Errorf("%+v", tc)
		}
	}
}

func TestGivingUp(t *testing.T) {
	terms := stepTerms()
	s := seen(terms, 0)
	s.view.relook = 0
	if v := s.Call(terms, 1, sec); v.Action != Ask || s.stuckAt != sec {
		t.Errorf("%+v, stuck at %d: the first call waits", v, s.stuckAt)
	}
	if v := s.Call(terms, 1, sec+20*ms); v.Action != Ask {
		t.Errorf("%+v: another call waits while the first has not waited for MaxWait", v)
	}
	if v := s.Call(terms, 1, sec+20*ms+1); v.Source != hybridlimit.SourceFallback || v.Without != WaitedLong || v.Sync != SyncNow {
		t.Errorf("%+v: another call need not wait when one has for MaxWait", v)
	}
	if v := s.TimedOut(terms, 1, sec); v.Source != hybridlimit.SourceFallback || v.Without != WaitTimeout {
		t.Errorf("auto: %+v", v)
	}
	terms.Mode = ModeStrict
	if v := s.TimedOut(terms, 1, sec); v.Action != Deny || v.Source != hybridlimit.SourceTimeout || v.Retry <= 0 {
		t.Errorf("strict: %+v", v)
	}
	terms.Broken = true
	if v := s.TimedOut(terms, 1, sec); v.Source != hybridlimit.SourceFallback {
		t.Errorf("strict, with the breaker open: %+v", v)
	}
	terms.Broken, terms.MaxWait = false, -1
	if s.stuckAt = 0; s.Call(terms, 1, sec).Without != NeverWaits {
		t.Error("with MaxWait negative a call waits")
	}
}

func TestFreeze(t *testing.T) {
	terms := stepTerms()
	s := seen(terms, 7)
	s.stuckAt = 5
	if _, ok := s.freeze(terms, nil, sec); ok || s.frozen || s.stuckAt != 0 {
		t.Errorf("nothing to sync, yet %+v", s)
	}
	s.pending, s.view.createdAt, s.view.redisAt = 3, 11, 12
	op, ok := s.freeze(terms, []int64{2}, sec)
	if !ok || op.Owed != 3 || op.Div != 2*terms.N || op.View != (algo.View{Level: 700_000, At: 12, Born: 11}) || len(op.Asks) != 1 {
		t.Errorf("%+v", op)
	}
	if s.pending != 0 || s.inflight != 3 || !s.frozen || !s.asked || s.stuckAt != sec {
		t.Errorf("%+v", s)
	}
	if lost := s.GiveUp(new(Waiters)).Dropped; lost != 3 || s.owed() != 0 || s.frozen || s.asked || s.stuckAt != 0 {
		t.Errorf("dropped %d: %+v", lost, s)
	}
	s.pending, terms.Mode = 1, ModeDeferred
	if op, _ := s.freeze(terms, nil, sec); op.Demand != 0 || op.Div != 2*terms.N || s.asked {
		t.Errorf("deferred asks for a lease, or for no next poll: %+v", op)
	}
}

func TestWorthLease(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*Account, *Conditions)
		want  bool
	}{
		{"demand, and room", func(*Account, *Conditions) {}, true},
		{"on its way", func(s *Account, _ *Conditions) { s.frozen = true }, false},
		{"enough in hand", func(s *Account, _ *Conditions) { s.leases[0] = lease{units: 5, end: 9 * sec} }, false},
		{"a spare one", func(s *Account, _ *Conditions) { s.leases[1] = lease{units: 1, end: 9 * sec} }, false},
		{"too little demand for a unit a second", func(s *Account, _ *Conditions) { s.demand = demand{} }, false},
		{"too full to live: the ledger", func(s *Account, _ *Conditions) { s.view.level = 990_000 }, true},
		{"too full to live, and a part that is not worth it", func(s *Account, t *Conditions) { s.view.level, t.N = 990_000, 3 }, false},
		{"little, but it can live", func(s *Account, _ *Conditions) { s.view.level = 390_000 }, true},
		{"not its turn", func(s *Account, _ *Conditions) { s.view.nextPoll = sec + 1 }, false},
		{"its turn", func(s *Account, _ *Conditions) { s.view.nextPoll = sec }, true},
		{"no turns for one alone with credit", func(s *Account, t *Conditions) { s.view.nextPoll, t.N = sec+1, 1 }, true},
		{"booked, and not to be renewed yet", func(s *Account, _ *Conditions) { s.leases[0] = lease{units: 5, end: sec + 100*ms, booked: true} }, false},
		{"booked, and ending before the second call from now", func(s *Account, _ *Conditions) { s.leases[0] = lease{units: 5, end: sec + 39*ms, booked: true} }, true},
		{"who knows", func(s *Account, _ *Conditions) { s.view = view{} }, true},
		{"no leases in this mode", func(_ *Account, t *Conditions) { t.Mode = ModeDeferred }, false},
	} {
		terms := stepTerms()
		s := seen(terms, 7)
		s.demand = demand{sum: 50, sq: 50, at: sec}
		tc.alter(&s, terms)
		if got := s.worthLease(terms, sec); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	s, terms := Account{demand: demand{sum: 1000, at: sec}}, stepTerms()
	if got := s.prefetchAt(terms, sec); got != 1 && got != 2 { // 1000 per second for 2 ms
		t.Errorf("prefetch at %d", got)
	}
}

// Units in the budget are also in the account. Units that come back from it are neither lost nor counted twice.
func TestLoadAndDrainConserveUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := stepTerms()
		terms.Credit = rapid.Int64Range(0, 10).Draw(t, "credit")
		terms.Blind = rapid.Bool().Draw(t, "blind")
		few := rapid.Int64Range(0, 6)
		s := seen(terms, rapid.Float64Range(-10, 10).Draw(t, "level"))
		s.view.redisAt = rapid.SampledFrom([]int64{0, 1, 5}).Draw(t, "known")
		s.leases = [2]lease{{units: few.Draw(t, "held"), end: 9 * sec}, {units: 0, end: 9 * sec}}
		if s.leases[0].units > 0 {
			s.leases[1].units = few.Draw(t, "spare")
		}
		s.pending, s.inflight = few.Draw(t, "pending"), few.Draw(t, "in flight")
		s.frozen = s.inflight > 0
		s.asked = s.frozen && rapid.Bool().Draw(t, "asked")
		s.demand = demand{sum: rapid.Float64Range(0, 5000).Draw(t, "demand"), at: sec}
		now := sec + rapid.Int64Range(0, 2*sec).Draw(t, "later")

		before, credit := s, s.CreditLeft(terms, now)
		w, until := s.Load(terms, now)
		if until > now+Ticks*terms.Tick {
			t.Fatalf("%+v until %d, %d ns from now", w, until, until-now)
		}
		left := int64(0)
		switch w.Kind {
		case NoBudget:
			if w.Units != 0 {
				t.Fatalf("%+v", w)
			}
		case LeaseBudget:
			if w.Units < 1 || w.Units > before.Held() || until > 9*sec {
				t.Fatalf("%+v until %d of %d held until %d", w, until, before.Held(), 9*sec)
			}
			left = rapid.Int64Range(0, w.Units).Draw(t, "left")
		case CreditBudget:
			if w.Units < 1 || w.Units > credit {
				t.Fatalf("%+v of %d on credit", w, credit)
			}
			left = rapid.Int64Range(0, w.Units).Draw(t, "left")
		case DenyBudget:
			if proved := s.ProvedUntil(terms, 1); w.Units != 0 || now >= proved || until > proved-terms.Tick {
				t.Fatalf("%+v until %d, proved until %d", w, until, proved)
			}
			left = rapid.Int64Range(0, 100).Draw(t, "denied")
		}
		s.drain(left, now)
		spent := w.Spendable() - left
		if w.Kind == DenyBudget {
			spent = 0
		}
		if got := before.Held() - s.Held() + s.pending - before.pending; got != spent || s.inflight != before.inflight {
			t.Fatalf("%+v: %d units spent, %d booked", w, spent, got)
		}
		if s.budget != (Budget{}) || s.leases[0].units < 0 || s.leases[1].units < 0 {
			t.Fatalf("%+v", s)
		}
		s.drain(5, now) // the second call takes nothing
		if got := before.Held() - s.Held() + s.pending - before.pending; got != spent {
			t.Fatalf("drained twice")
		}
	})
}

func TestExpireAndSpendTheOlderFirst(t *testing.T) {
	s := Account{leases: [2]lease{{units: 3, end: 2 * sec}, {units: 5, end: 4 * sec}}}
	s.spend(4)
	if s.leases != [2]lease{{units: 4, end: 4 * sec}} {
		t.Errorf("%+v", s.leases)
	}
	s.leases = [2]lease{{units: 3, end: 2 * sec}, {units: 5, end: 4 * sec}}
	if lost := s.expire(2*sec - 1); lost != 0 {
		t.Errorf("lost %d a ns early", lost)
	}
	if lost := s.expire(2 * sec); lost != 3 || s.leases != [2]lease{{units: 5, end: 4 * sec}} {
		t.Errorf("lost %d: %+v", lost, s.leases)
	}
}

func TestIdle(t *testing.T) {
	for _, s := range []Account{{pending: 1}, {inflight: 1}, {frozen: true}, {local: outage{admitted: 1}}} {
		if s.Idle() {
			t.Errorf("%+v", s)
		}
	}
	if s := (Account{leases: [2]lease{{units: 3}}}); !s.Idle() {
		t.Error("a lease alone keeps a key in memory")
	}
}

// A configured K stays K. An adaptive K grows to the key's use in T. In both cases a sync is urgent while the credit that is left
// lasts for as long as the sync may take, here 14 ms, or from half of the credit on.
func TestFlushAt(t *testing.T) {
	of := func(perSecond float64) demand { return demand{at: 100 * sec, sum: perSecond, sq: float32(perSecond)} }
	busy := of(100_000)
	for _, tc := range []struct {
		name     string
		every    int64
		adaptive bool
		credit   int64
		demand   demand
		want     int64
	}{
		{"given", 50, false, 1 << 40, busy, 50},
		{"adaptive, idle", 1000, true, 1 << 40, demand{}, 1000},
		{"adaptive, busy: 100 000 a second for 50 ms", 1000, true, 1 << 40, busy, 5000},
		{"half of the credit", 1000, true, 90, busy, 45},
		{"the credit of 14 ms", 1000, true, 90, of(1000), 90 - 14 + 1},
		{"a key with some calls: all of it", 1000, true, 90, of(10), 90},
		{"two units, some calls", 1000, true, 2, of(10), 2},
		{"a key with few calls waits for T", 1000, true, 90, of(8), 91},
		{"two units, few calls", 1000, true, 2, of(8), 3},
		{"one unit, few calls", 1000, true, 1, of(1), 2},
		{"two units, many calls", 1000, true, 2, of(200), 1},
		{"at least one", 1000, false, 1, busy, 1},
	} {
		terms := stepTerms()
		terms.Every, terms.Adaptive, terms.Credit, terms.Interval = tc.every, tc.adaptive, tc.credit, 50*ms
		s := seen(terms, 1<<40)
		terms.Bucket.Cap, s.view.cap = s.view.level, s.view.level
		if s.demand = tc.demand; s.CreditLeft(terms, 100*sec) != tc.credit {
			t.Errorf("%s: %d units of credit", tc.name, s.CreditLeft(terms, 100*sec))
		}
		if got := s.flushAt(terms, 100*sec); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// While there are so many keys that syncs wait, a key takes a lease only if it needs one.
func TestWithoutLeasesWhileSyncsWait(t *testing.T) {
	for _, tc := range []struct {
		name    string
		behind  bool
		credit  int64
		demand  float64 // per second
		without bool
	}{
		{"nobody waits", false, 4, 3, false},
		{"the credit lasts", true, 4, 3, true},
		{"it does not", true, 4, 5, false},
		{"there is none", true, 0, 3, false},
	} {
		tm := stepTerms()
		tm.Behind, tm.Credit, tm.Interval = tc.behind, tc.credit, sec
		s := seen(tm, 10)
		s.demand = demand{sum: tc.demand, sq: 0, at: sec}
		if got := !s.takesLease(tm, sec); got != tc.without {
			t.Errorf("%s: without a lease %t, want %t", tc.name, got, tc.without)
		}
		if got := !s.worthLease(tm, sec); got != tc.without {
			t.Errorf("%s: no sync for one %t, want %t", tc.name, got, tc.without)
		}
	}
}

// A key with plenty of units takes leases from the demand on that its credit does not carry while payments are gathered, at most
// 8 a second. A lease that is there is kept.
func TestFromWhichDemandLeasesCome(t *testing.T) {
	for _, tc := range []struct {
		name     string
		interval int64
		credit   int64
		level    float64
		held     int64
		demand   float64 // per second
		leases   bool
	}{
		{"credit for 31 a second", 50 * ms, 4, 10, 0, 7, false},
		{"busier", 50 * ms, 4, 10, 0, 9, true},
		{"credit for 2.6 a second", 750 * ms, 4, 10, 0, 2, false},
		{"more than that", 750 * ms, 4, 10, 0, 3, true},
		{"units are scarce", 50 * ms, 4, 4, 0, 3, true},
		{"it holds units", 50 * ms, 4, 10, 1, 3, true},
		{"no credit", 50 * ms, 0, 10, 0, 3, true},
	} {
		tm := stepTerms()
		tm.Interval, tm.Credit = tc.interval, tc.credit
		s := seen(tm, tc.level)
		s.demand = demand{sum: tc.demand, sq: float32(tc.demand), at: sec}
		if tc.held > 0 {
			s.leases[0], s.booked = lease{units: tc.held, end: sec + 900*ms, booked: true}, booking{gen: 1, had: tc.held}
		}
		if got := s.takesLease(tm, sec); got != tc.leases {
			t.Errorf("%s: takes a lease: %t", tc.name, got)
		}
		s.owe(1, 0)
		if got := s.mayPayAlone(tm, nil, sec); got == tc.leases {
			t.Errorf("%s: pays alone: %t", tc.name, got)
		}
	}
}
