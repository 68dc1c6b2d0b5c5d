; The answers of CPUID: four registers for each of four leaves, zeros for those that the processor
; lacks; then the registers that the system keeps (XCR0), 0 where it does not say.
define internal void @processor_answers(ptr %answers) {
  %first = call { i32, i32, i32, i32 } @cpuid(i32 0, i32 0)
  %last = extractvalue { i32, i32, i32, i32 } %first, 0
  %beyond = call { i32, i32, i32, i32 } @cpuid(i32 -2147483648, i32 0)
  %last.beyond = extractvalue { i32, i32, i32, i32 } %beyond, 0
  %has.basic = icmp uge i32 %last, 1
  %has.more = icmp uge i32 %last, 7
  %has.other = icmp uge i32 %last.beyond, -2147483647
  %more.at = getelementptr i32, ptr %answers, i64 4
  %most.at = getelementptr i32, ptr %answers, i64 8
  %other.at = getelementptr i32, ptr %answers, i64 12
  call void @processor_leaf(ptr %answers, i32 1, i32 0, i1 %has.basic)
  call void @processor_leaf(ptr %more.at, i32 7, i32 0, i1 %has.more)
  %parts = load i32, ptr %more.at
  %has.parts = icmp uge i32 %parts, 1
  %has.most = and i1 %has.more, %has.parts
  call void @processor_leaf(ptr %most.at, i32 7, i32 1, i1 %has.most)
  call void @processor_leaf(ptr %other.at, i32 -2147483647, i32 0, i1 %has.other)
  %features.at = getelementptr i32, ptr %answers, i64 2
  %features = load i32, ptr %features.at
  %saves = and i32 %features, 134217728
  %keeps = icmp ne i32 %saves, 0
  %state.at = getelementptr i32, ptr %answers, i64 16
  store i32 0, ptr %state.at
  br i1 %keeps, label %ask, label %done
ask:
  %xcr = call { i32, i32 } asm sideeffect "xgetbv", "={eax},={edx},{ecx},~{dirflag},~{fpsr},~{flags}"(i32 0)
  %state = extractvalue { i32, i32 } %xcr, 0
  store i32 %state, ptr %state.at
  br label %done
done:
  ret void
}

define internal { i32, i32, i32, i32 } @cpuid(i32 %leaf, i32 %part) {
  %found = call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={eax},={ebx},={ecx},={edx},{eax},{ecx},~{dirflag},~{fpsr},~{flags}"(i32 %leaf, i32 %part)
  ret { i32, i32, i32, i32 } %found
}

define internal void @processor_leaf(ptr %answers, i32 %leaf, i32 %part, i1 %has) {
  %found = call { i32, i32, i32, i32 } @cpuid(i32 %leaf, i32 %part)
  %a = extractvalue { i32, i32, i32, i32 } %found, 0
  %b = extractvalue { i32, i32, i32, i32 } %found, 1
  %c = extractvalue { i32, i32, i32, i32 } %found, 2
  %d = extractvalue { i32, i32, i32, i32 } %found, 3
  %a.told = select i1 %has, i32 %a, i32 0
  %b.told = select i1 %has, i32 %b, i32 0
  %c.told = select i1 %has, i32 %c, i32 0
  %d.told = select i1 %has, i32 %d, i32 0
  %b.at = getelementptr i32, ptr %answers, i64 1
  %c.at = getelementptr i32, ptr %answers, i64 2
  %d.at = getelementptr i32, ptr %answers, i64 3
  store i32 %a.told, ptr %answers
  store i32 %b.told, ptr %b.at
  store i32 %c.told, ptr %c.at
  store i32 %d.told, ptr %d.at
  ret void
}
