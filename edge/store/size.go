package store

import "slices"

// The allocator hands out memory in size classes (internal/runtime/gc/sizeclasses.go, Go
// 1.26); above the last one in pages. A test compares the table with what
// append does.
var sizeClasses = [...]uint16{
	8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448,
	480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096,
	4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432,
	19072, 20480, 21760, 24576, 27264, 28672, 32768,
}

const (
	maxClassBytes  = 32768
	heapPageBytes  = 8192
	tinyBlockBytes = 16  // pointer-free allocations below share a block, which lives as long as the last of them
	headerFromSize = 512 // above, an allocation with pointers carries a word of its own
)

// allocBytes is the memory that a pointer-free allocation of n bytes takes.
func allocBytes(n int64) int64 {
	switch {
	case n <= 0:
		return 0
	case n <= tinyBlockBytes:
		return tinyBlockBytes
	case n > maxClassBytes:
		return (n + heapPageBytes - 1) &^ (heapPageBytes - 1)
	}
	i, _ := slices.BinarySearch(sizeClasses[:], uint16(n))
	return int64(sizeClasses[i])
}

// allocPointerBytes is the same for an allocation that holds pointers.
func allocPointerBytes(n int64) int64 {
	if n > headerFromSize && n <= maxClassBytes {
		n += 8
	}
	return allocBytes(n)
}
