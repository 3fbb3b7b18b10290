"""A table in Spark's JVM that gives each scan a provider of its own (SPARK-58551).

Spark has no such class, and an object of Python would be called back from Spark's threads
for every question about the table. So the table is a `java.lang.reflect.Proxy` over method
handles (`java.lang.invoke`), which Python only composes: every method is that of Spark's own
`PythonTable`, except `newScanBuilder`, which starts from a new provider. Once it is made,
nothing calls Python, and the JVM frees it with the last plan that refers to it.
"""

from typing import Any

_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python."
_SUPPORTS_READ = "org.apache.spark.sql.connector.catalog.SupportsRead"
_GIVEN = "source", "dataSourceInPython", "name"  # fields of a provider, in the order they come
_OPTIONS = "org.apache.spark.sql.util.CaseInsensitiveStringMap"


class ApartTables:
    """Factory of such tables in one JVM, which is asked once for their shared parts.

    All methods raise py4j's errors where this Spark has other classes than expected here.
    """

    def __init__(self, gateway: Any, loader: Any) -> None:
        """Take py4j's gateway and the class loader of Spark's classes."""
        self._gateway = gateway
        self._loader = loader
        # Each part of a name, each call and each object is a question to the JVM, hence once.
        java = gateway.jvm.java
        self._object, self._type, self._invoke = java.lang.Object, java.lang.Class, java.lang.invoke
        self._handles = self._invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._some, self._none = gateway.jvm.scala.Option.apply, gateway.jvm.scala.Option.empty()
        self._map, self._identity_map = java.util.HashMap, java.util.IdentityHashMap
        self._new_proxy = java.lang.reflect.Proxy.newProxyInstance
        self._instance_of = self._invoke.MethodHandleProxies.asInterfaceInstance
        self._handler = self._class("java.lang.reflect.InvocationHandler")
        plain, asked = self._class("java.lang.Object"), self._class(_SUPPORTS_READ)
        self._interfaces, self._of_table = self._classes(asked), self._classes(plain)
        self._provider = self._field("PythonTable", "ds")
        self._equals = plain.getMethod("equals", self._classes(plain))
        self._contains = self._method("java.util.Map", "containsKey", plain)
        options = self._classes(self._class(_OPTIONS))
        self._new_scan = asked.getMethod("newScanBuilder", options)
        of_object = [plain.getMethod(name, self._classes()) for name in ("hashCode", "toString")]
        self._handle_of = self._map()
        for method in [*asked.getMethods(), *of_object]:
            self._handle_of.put(method, self._lookup.unreflect(method))
        self._scan = self._new_scan_builder()
        self._call = self._call_by_map()

    def source(self, relation: Any) -> tuple[Any, Any]:
        """Return the class and the pickled form of the source of a relation that `load()` made."""
        table = relation.table()
        provider = self._provider.get(table)
        schema = self._some(table.schema())
        created = provider.getOrCreateDataSourceInPython(table.name(), relation.options(), schema)
        return provider.source(), created

    def over(self, relation: Any, source: Any, created: Any) -> Any:
        """Return the relation over a table like its own that plans each scan by itself.

        The table equals only itself, so that queries find what `cache()` keeps of the same
        `load()`.
        """
        table = relation.table()
        identity = self._identity_map()
        scan = self._scan.bindTo(source).bindTo(created).bindTo(table.name())
        handle_of = self._map(self._handle_of)
        for method, handle in (
            (self._equals, self._contains.bindTo(identity)),
            (self._new_scan, scan.bindTo(table.schema())),
        ):
            handle_of.put(method, self._handles.dropArguments(handle, 0, self._of_table))
        call = self._call.bindTo(handle_of).bindTo(table)
        handler = self._instance_of(self._handler, call)
        apart = self._new_proxy(self._loader, self._interfaces, handler)
        identity.put(apart, True)
        apart.newScanBuilder(
            relation.options()
        )  # what this Spark refuses fails here, not in a query
        return relation.create(apart, self._none, self._none)

    def _new_scan_builder(self) -> Any:
        """Return a handle `(source, created, name, schema, options) -> ScanBuilder`."""
        handles, provider = self._handles, self._class(_PYTHON + "PythonDataSourceV2")
        schema = self._class("org.apache.spark.sql.types.StructType")
        table_of = self._constructor(
            "PythonTable", provider, self._class("java.lang.String"), schema
        )
        build = handles.collectArguments(
            self._method(_PYTHON + "PythonTable", "newScanBuilder", self._class(_OPTIONS)),
            0,
            table_of,
        )
        # Else it would look its class up by name, in whichever session is active then, and
        # start a Python worker to make the source once more.
        fields = [self._field("PythonDataSourceV2", name) for name in _GIVEN]
        types = [field.getType() for field in fields]
        build = handles.dropArguments(build, 1, self._classes(*types[:2]))  # the name is there
        for place, field in enumerate(fields):
            setter = self._lookup.unreflectSetter(field)
            before = self._classes(*types[:place])
            build = handles.foldArguments(build, handles.dropArguments(setter, 1, before))
        is_made = self._lookup.unreflectSetter(self._field("PythonDataSourceV2", "bitmap$0"))
        made = handles.insertArguments(is_made, 1, self._array(self._object, True))
        build = handles.foldArguments(build, made)  # `source` is a lazy val, and has its value
        return handles.foldArguments(build, self._constructor("PythonDataSourceV2"))

    def _call_by_map(self) -> Any:
        """Return a handle `(handle of each method, table, proxy, method, arguments) -> result`."""
        handles, plain = self._handles, self._class("java.lang.Object")
        of_handles = "java.lang.invoke.MethodHandle"
        arguments = self._array(self._object).getClass()
        handle, method = self._class(of_handles), self._class("java.lang.reflect.Method")
        mapping = self._class("java.util.Map")
        choose = handles.explicitCastArguments(
            self._method("java.util.Map", "get", plain),
            self._invoke.MethodType.methodType(handle, self._classes(mapping, method)),
        )
        call = handles.collectArguments(
            self._method(of_handles, "invokeWithArguments", arguments),
            0,
            self._method(of_handles, "bindTo", plain),
        )
        call = handles.collectArguments(call, 0, choose)  # of a map, a method, a table, arguments
        types = self._classes(mapping, plain, plain, method, arguments)
        order = self._array(self._gateway.jvm.int, 0, 3, 1, 4)
        taken = self._invoke.MethodType.methodType(plain, types)
        return handles.permuteArguments(call, taken, order)

    def _class(self, name: str) -> Any:
        return self._loader.loadClass(name)

    def _field(self, of: str, name: str) -> Any:
        field = self._class(_PYTHON + of).getDeclaredField(name)
        field.setAccessible(True)
        return field

    def _method(self, of: str, name: str, *types: Any) -> Any:
        return self._lookup.unreflect(self._class(of).getMethod(name, self._classes(*types)))

    def _constructor(self, of: str, *types: Any) -> Any:
        found = self._class(_PYTHON + of).getConstructor(self._classes(*types))
        return self._lookup.unreflectConstructor(found)

    def _classes(self, *classes: Any) -> Any:
        return self._array(self._type, *classes)

    def _array(self, of: Any, *values: Any) -> Any:
        array = self._gateway.new_array(of, len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array
