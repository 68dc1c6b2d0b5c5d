; The number of the first array that is null or no multiple of 64, counted from 1; 0 for none.
define internal i32 @wrong_array(ptr %arrays, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %left = icmp ult i64 %i, %count
  br i1 %left, label %look, label %fine
look:
  %at = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %at
  %bad = call i1 @is_apart(ptr %array)
  %next = add i64 %i, 1
  br i1 %bad, label %refused, label %loop
refused:
  %number = trunc i64 %next to i32
  ret i32 %number
fine:
  ret i32 0
}

; -2 where scratch memory is unaligned or too small, or threads are not 1 to 65536; else 0.
define internal i32 @wrong_scratch(ptr %scratch, i64 %bytes, i64 %threads, i64 %need) {
  %others = sub i64 %threads, 1
  %idle = icmp uge i64 %others, 65536
  %apart = call i1 @is_apart(ptr %scratch)
  %small = icmp ult i64 %bytes, %need
  %unfit = or i1 %apart, %small
  %needed = icmp ne i64 %need, 0
  %lacks = and i1 %needed, %unfit
  %bad = or i1 %idle, %lacks
  %found = select i1 %bad, i32 -2, i32 0
  ret i32 %found
}

define internal i1 @is_apart(ptr %array) {
  %address = ptrtoint ptr %array to i64
  %rest = and i64 %address, 63
  %null = icmp eq i64 %address, 0
  %unaligned = icmp ne i64 %rest, 0
  %bad = or i1 %null, %unaligned
  ret i1 %bad
}
