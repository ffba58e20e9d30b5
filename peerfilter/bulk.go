package peerfilter

// AddAll counts all keys whose hashes are hs.
func (c *Counting) AddAll(hs []Hash) {
	for _, h := range hs {
		c.Add(h)
	}
}
