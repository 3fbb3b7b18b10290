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
_OPTIONS = "org.apache.spark.sql.util.CaseInsensitiveStringMap"


class ApartTables:
    """Makes such tables in one JVM.

    All methods raise py4j's errors where this Spark has other classes than expected here.
    """

    def __init__(self, gateway: Any, loader: Any) -> None:
        """Take py4j's gateway and the class loader of Spark's classes."""
        self._gateway = gateway
        self._loader = loader
        # Each part of a name is a question to the JVM, hence once.
        lang = gateway.jvm.java.lang
        self._object, self._type, self._invoke = lang.Object, lang.Class, lang.invoke
        self._handle, self._handles = self._invoke.MethodHandle, self._invoke.MethodHandles
        self._lookup = self._handles.publicLookup()

    def source(self, relation: Any) -> tuple[Any, Any]:
        """What `load()` made of a relation: its source's class, and its source (pickled)."""
        table = relation.table()
        provider = self._field("PythonTable", "ds").get(table)
        schema = self._gateway.jvm.scala.Option.apply(table.schema())
        created = provider.getOrCreateDataSourceInPython(table.name(), relation.options(), schema)
        return provider.source(), created

    def like(self, relation: Any, source: Any, created: Any) -> Any:
        """A table like that of the relation, each scan of which is planned by itself.

        It equals only itself, so that queries find what `cache()` keeps of the same `load()`.
        """
        jvm, table, options = self._gateway.jvm, relation.table(), relation.options()
        identity = jvm.java.util.IdentityHashMap()
        handle_of = jvm.java.util.HashMap()
        plain = self._class("java.lang.Object")
        asked = self._class(_SUPPORTS_READ)
        of_object = [plain.getMethod(name, self._classes()) for name in ("hashCode", "toString")]
        for method in [*asked.getMethods(), *of_object]:
            handle_of.put(method, self._bound(self._lookup.unreflect(method), 0, table))
        handle_of.put(
            plain.getMethod("equals", self._classes(plain)),
            self._bound(self._method("java.util.Map", "containsKey", plain), 0, identity),
        )
        handle_of.put(
            asked.getMethod("newScanBuilder", self._classes(self._class(_OPTIONS))),
            self._new_scan_builder(table, source, created),
        )
        apart = jvm.java.lang.reflect.Proxy.newProxyInstance(
            self._loader, self._classes(asked), self._invocation_handler(handle_of)
        )
        identity.put(apart, True)
        apart.newScanBuilder(options)  # what this Spark refuses fails here, not in a query
        return apart

    def _new_scan_builder(self, table: Any, source: Any, created: Any) -> Any:
        """`(options) -> ScanBuilder`, of a provider that no other scan has."""
        handles = self._handles
        provider = self._class(_PYTHON + "PythonDataSourceV2")
        text, schema = self._class("java.lang.String"), table.schema().getClass()
        table_of = self._bound(
            self._lookup.unreflectConstructor(
                self._class(_PYTHON + "PythonTable").getConstructor(
                    self._classes(provider, text, schema)
                )
            ),
            1,
            table.name(),
            table.schema(),
        )
        build = handles.filterArguments(
            self._method(_PYTHON + "PythonTable", "newScanBuilder", self._class(_OPTIONS)),
            0,
            self._array(self._handle, table_of),
        )
        # Else it would look its class up by name, in whichever session is active then, and
        # start a Python worker to make the source once more.
        for name, value in (
            ("source", source),
            ("bitmap$0", True),  # `source` is a lazy val, and has its value
            ("name", table.name()),
            ("dataSourceInPython", created),
        ):
            setter = self._lookup.unreflectSetter(self._field("PythonDataSourceV2", name))
            build = handles.foldArguments(build, self._bound(setter, 1, value))
        new = self._lookup.unreflectConstructor(provider.getConstructor(self._classes()))
        return handles.foldArguments(build, new)

    def _invocation_handler(self, handle_of: Any) -> Any:
        """Calls the handle that a map has for the method."""
        handles = self._handles
        plain = self._class("java.lang.Object")
        handle = self._class("java.lang.invoke.MethodHandle")
        method = self._class("java.lang.reflect.Method")
        choose = handles.explicitCastArguments(
            self._bound(self._method("java.util.Map", "get", plain), 0, handle_of),
            self._invoke.MethodType.methodType(handle, method),
        )
        arguments = self._array(self._object).getClass()
        call = handles.filterArguments(
            self._method("java.lang.invoke.MethodHandle", "invokeWithArguments", arguments),
            0,
            self._array(self._handle, choose),
        )
        return self._invoke.MethodHandleProxies.asInterfaceInstance(
            self._class("java.lang.reflect.InvocationHandler"),
            handles.dropArguments(call, 0, self._classes(plain)),
        )

    def _class(self, name: str) -> Any:
        return self._loader.loadClass(name)

    def _field(self, of: str, name: str) -> Any:
        field = self._class(_PYTHON + of).getDeclaredField(name)
        field.setAccessible(True)
        return field

    def _method(self, of: str, name: str, *types: Any) -> Any:
        return self._lookup.unreflect(self._class(of).getMethod(name, self._classes(*types)))

    def _bound(self, handle: Any, position: int, *values: Any) -> Any:
        given = self._array(self._object, *values)
        return self._handles.insertArguments(handle, position, given)

    def _classes(self, *classes: Any) -> Any:
        return self._array(self._type, *classes)

    def _array(self, of: Any, *values: Any) -> Any:
        array = self._gateway.new_array(of, len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array
