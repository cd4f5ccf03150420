package algo

// The constants of the rules, in µs. What they are worth is measured in
// docs/lab, by the lab in bench/accuracy.
const (
	// MaxLease is the longest that a lease of a bucket lives, and a generation
	// of the ledger.
	MaxLease = 1_000_000
	// WindowLease is how much of a process's demand a lease of a window is for
	// at most. It lives as long as its window, and what is in the hands of a
	// process that does not need it any more is nobody's until then.
	WindowLease = 5 * MaxLease
	// MinLease is the shortest lease worth having: a process takes two ticks
	// of up to 5 ms off its deadline.
	MinLease = 20_000
	// ClockSlack is how far Redis's clock may step back and freeze the
	// refill; a larger step shifts the state with the clock.
	ClockSlack = 1_000_000
	// Horizon is the longest time for which a visit hands out units while
	// they are scarce.
	Horizon = 500_000
	// MaxTicket bounds the wait for a turn; processes look again sooner.
	MaxTicket = 60_000_000
)

// State is what Redis keeps of a key, but for a sliding log.
type State struct {
	Kind Kind // of the limit that wrote it; under another kind it is lost

	Born  int64 // µs of Redis time at creation; 0: there is no state
	Since int64 // units debited since Born or Reset, less those given back; at most 2⁵³
	Reset int64 // µs of Redis time of the last Reset; 0: none. Views up to it are void

	// Of a bucket or queue.
	Unit   int64 // sub-units per unit when it was written
	Refill int64 // sub-units per µs then
	Level  int64 // sub-units left, negative is debt, down to -Cap; of a queue less Cap: minus what stands in it
	Last   int64 // µs of Redis time at which Level was right
	Slot   int64 // µs of Redis time of the next free turn; 0: now

	// Out is the ledger: units leased that lower the level to which the
	// bucket refills, by generation: that of Last, and the one before.
	Out [2]int64

	// Of a window.
	Period int64 // µs of a window when it was written
	Win    int64 // number of the current window: Redis time / Period
	Cur    int64 // units counted in it; of a fixed window with what was carried into it
	Prev   int64 // units counted in the one before
	Late   int64 // in the window of Born: how many units of Since it does not count, because they came late for the one before

	// More is the fields of other versions, as they stand in the state's text.
	More string
}

// View is a state as a process last saw it, sent back so that Redis can tell,
// and repair, a loss. The zero View says nothing.
type View struct {
	Level int64 // sub-units of the op's limit
	Prev  int64 // of a sliding window: units counted in the window before that of At
	At    int64 // µs of Redis time of that answer
	Born  int64 // State.Born then
}

// Op is one exchange for one key: pay what is owed, ask for units, ask for a
// lease.
type Op struct {
	Owed    int64   // units already admitted, debited unconditionally
	Asks    []int64 // units wanted, granted one after the other as they fit
	Partial bool    // an ask may be granted in part
	Demand  int64   // the process's demand in thousandths of a unit per second
	Div     int64   // twice the fleet: a lease takes at most 1/Div of what is left; 0: no lease and no turn
	View    View    // the sender's last; zero: none
	Gen     int64   // generation of what the ledger holds for the sender; 0: nothing
	Had     int64   // units that it holds
	Keep    int64   // units of these still in hand, to be renewed
	// Lost says that Redis lost writes since View, so that it holds against a
	// state of its own birth too. Not without a reason: during a rollout
	// another process's refill makes a level look too high.
	Lost bool

	Win    int64 // number of the window in which Owed was admitted; 0: the current one
	Refund int64 // units given back
	// RefundAt tells when Refund was taken. Of a window it is its number; 0: not
	// known, so the current one, and what that has not counted is of the one
	// before. Of a log it is the µs of Redis time of the entry; 0: the oldest. Of
	// a bucket it is the µs from which the units might have been used, and what
	// was granted after that stays taken; of a queue the µs at which the first of
	// them is served; 0: all comes back.
	RefundAt int64
	// Since is the µs for which the sender's limit has been in force; 0: for
	// longer than a state lives. Before that the limit that wrote the state
	// refilled it.
	Since    int64
	Reset    bool   // first of all, forget what was used, and all views up to now
	MaxDelay int64  // µs that the only ask may be put off, in debt down to -Cap; 0: it is granted now or refused. No lease and no turn comes with it
	ID       string // of a log: noted beside what is admitted
}

// Answer is what an Op got.
type Answer struct {
	Granted int64 // units granted to Asks
	Lease   int64 // units leased
	Life    int64 // µs that the lease may be spent, and, unless Gen says otherwise, any unused grant; 0 of a queue, whose slots lie one behind the other from Delay on
	Level   int64 // sub-units left, negative in debt
	Delay   int64 // µs until the first ask that was granted may be used, those after it later by what it costs; of a queue's lease alone, until its first slot
	Retry   int64 // µs until the first refused ask can succeed (Never above the burst), else until one unit is there; with Div: until the sender's turn
	Born    int64 // State.Born; 0 where no state was needed
	Cap     int64 // sub-units to which the bucket refills, as the ledger is now
	Refill  int64 // of a window: sub-units that come back each µs until Ends
	Ends    int64 // of a window: µs until it does; of a log: until it is empty; 0 else
	Dropped bool  // Owed was of a window before the last: it is not counted any more
	Gen     int64 // not 0: the ledger holds the lease and what was to be kept, in this generation
}
