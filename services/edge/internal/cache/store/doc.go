// Package store keeps responses on disk (bbolt) and the hot ones in memory. It
// knows keys, names, heads and bodies, and nothing of HTTP.
//
// # What is authoritative
//
// The index in memory says what is stored: one slot of 80 bytes and a place in
// a map for each entry, and no pointers. The file holds what the index names,
// or will soon: an entry is readable from the moment it is put, out of the
// queue of the one goroutine that writes, and on disk within about 100 ms. The
// memory tier takes it when it is read for the first time, or was validated. Every
// version of an entry has a number of its own, by which the memory tier and the
// file hold it, so neither can show an old one. Everything here can be fetched
// again, and may be deleted while the process does not run.
//
// # The file
//
// Three buckets, all by ascending numbers, so that writes go to the end and
// removals leave whole pages: records (what an entry is, its head, and its body
// if both fit into 32 KiB), chunks of larger bodies, and purges. Records and
// chunks carry a CRC-32C that covers their number too. Writes are batched;
// reads copy within short transactions and never write to a client within one.
//
// The budget is held against what the file really uses after each batch. The
// entry that was not read for longest goes first (SIEVE: a pointer moves from
// old to new and passes over what was read since it came by last, so a reader
// moves nothing, and what was seen once does not push out what is asked for).
// The file itself may be half as large again: pages that are freed while
// somebody reads can be used again only after that. It does not shrink; a
// smaller budget makes it anew at the next start.
//
// Who reads a body of more than 256 KiB pins its chunks until he closes the
// item, whatever becomes of the entry; they count in the budget meanwhile.
//
// # Crashes
//
// Nothing is synced while the store runs. Beside the file lies its state: one
// line, locked by the process that uses the file, which says how far the last
// life came, and in which realm. A file of another realm is deleted. A file that was closed well is used again, after a look at the
// checksum of what bbolt believes without looking. So is the file of a process
// that was killed while the machine ran on (the boot id tells), as the system
// has all that was written. After a power cut, after a death while the file was
// being opened, and after a second death soon after the first, it is deleted:
// bbolt may crash on a torn file in a goroutine of its own, and this must not
// repeat itself.
//
// An entry that was replaced or deleted within the last tenth of a second
// before a kill may come back as it was, or be gone. A purge does not come back once Purge has
// returned nil.
//
// # Failures
//
// Disk full or not writable: what is stored stays readable and nothing new is
// stored; a write is tried again after one second, later after up to 30.
// Another process uses the folder, or it cannot be made: the store is empty,
// and tries again likewise. A file that is corrupt, cut or removed: a new one
// is begun. An entry that does not match its checksum is dropped; a reader gets
// an error before a wrong byte. More to write than 64 MiB: it is not stored.
// Each of these is counted, and logged once until it is over.
package store
