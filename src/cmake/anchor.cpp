// The shared library's own translation unit: everything else comes from the module archives. It
// gives back what the copy of libstdc++ inside the library has allocated for itself (the reserve
// for exceptions), so that loading and unloading the library again and again does not leak.
#ifdef QINFER_OWN_LIBSTDCXX

namespace __gnu_cxx {
void __freeres();  // of libstdc++; in no header
}

namespace {

__attribute__((destructor)) void FreeReserve() { __gnu_cxx::__freeres(); }

}  // namespace

#endif
