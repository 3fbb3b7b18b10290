"""A table in Spark's JVM that gives each scan a provider of its own (SPARK-58551).

Spark has no such class, and an object of Python would be called back from Spark's threads
for every question about the table. So the table is a `java.lang.reflect.Proxy` over method
handles (`java.lang.invoke`), which Python only composes: every method is that of Spark's own
`PythonTable`, except `newScanBuilder`, which starts from a new provider. Once it is made,
nothing calls Python, and the JVM frees it with the last plan that refers to it.
"""

from collections.abc import Callable
from typing import Any

_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python."
_SUPPORTS_READ = "org.apache.spark.sql.connector.catalog.SupportsRead"
_OPTIONS = "org.apache.spark.sql.util.CaseInsensitiveStringMap"


class ApartTables:
    """Makes such tables in one JVM, which it asks once for what all of them share.

    All methods raise py4j's errors where this Spark has other classes than expected here.
    """

    def __init__(self, gateway: Any, loader: Any) -> None:
        """Take py4j's gateway and the class loader of Spark's classes."""
        self._gateway = gateway
        self._loader = loader
        self._found: dict[tuple[str, ...], Any] = {}
        # Each part of a name is a question to the JVM, hence once.
        lang = gateway.jvm.java.lang
        self._object, self._type, self._invoke = lang.Object, lang.Class, lang.invoke
        self._handle, self._handles = self._invoke.MethodHandle, self._invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._plain, self._asked = self._class("java.lang.Object"), self._class(_SUPPORTS_READ)
        self._equals = self._plain.getMethod("equals", self._classes(self._plain))
        self._contains = self._method("java.util.Map", "containsKey", self._plain)
        options = self._classes(self._class(_OPTIONS))
        self._new_scan = self._asked.getMethod("newScanBuilder", options)
        names = ("hashCode", "toString")
        of_object = [self._plain.getMethod(name, self._classes()) for name in names]
        self._handle_of = gateway.jvm.java.util.HashMap()
        for method in [*self._asked.getMethods(), *of_object]:
            self._handle_of.put(method, self._lookup.unreflect(method))

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
        of_table = self._classes(self._plain)  # the first argument of all handles
        handle_of = jvm.java.util.HashMap(self._handle_of)
        for method, handle in (
            (self._equals, self._bound(self._contains, 0, identity)),
            (self._new_scan, self._new_scan_builder(table, source, created)),
        ):
            handle_of.put(method, self._handles.dropArguments(handle, 0, of_table))
        apart = jvm.java.lang.reflect.Proxy.newProxyInstance(
            self._loader, self._classes(self._asked), self._invocation_handler(handle_of, table)
        )
        identity.put(apart, True)
        apart.newScanBuilder(options)  # what this Spark refuses fails here, not in a query
        return apart

    def _new_scan_builder(self, table: Any, source: Any, created: Any) -> Any:
        """`(options) -> ScanBuilder`, of a provider that no other scan has."""
        handles = self._handles
        provider = self._class(_PYTHON + "PythonDataSourceV2")
        name, schema = table.name(), table.schema()
        types = provider, self._class("java.lang.String"), schema.getClass()
        table_of = self._bound(self._constructor("PythonTable", *types), 1, name, schema)
        build = handles.filterArguments(
            self._method(_PYTHON + "PythonTable", "newScanBuilder", self._class(_OPTIONS)),
            0,
            self._array(self._handle, table_of),
        )
        # Else it would look its class up by name, in whichever session is active then, and
        # start a Python worker to make the source once more.
        for field, value in (
            ("source", source),
            ("bitmap$0", True),  # `source` is a lazy val, and has its value
            ("name", name),
            ("dataSourceInPython", created),
        ):
            setter = self._lookup.unreflectSetter(self._field("PythonDataSourceV2", field))
            build = handles.foldArguments(build, self._bound(setter, 1, value))
        return handles.foldArguments(build, self._constructor("PythonDataSourceV2"))

    def _invocation_handler(self, handle_of: Any, table: Any) -> Any:
        """Calls the handle that a map has for the method, with the table before its arguments."""
        handles, plain = self._handles, self._plain
        handle = self._class("java.lang.invoke.MethodHandle")
        method = self._class("java.lang.reflect.Method")
        choose = handles.explicitCastArguments(
            self._bound(self._method("java.util.Map", "get", plain), 0, handle_of),
            self._invoke.MethodType.methodType(handle, method),
        )
        bind = self._bound(self._method("java.lang.invoke.MethodHandle", "bindTo", plain), 1, table)
        choose = handles.filterReturnValue(choose, bind)
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
        return self._once((name,), lambda: self._loader.loadClass(name))

    def _field(self, of: str, name: str) -> Any:
        def find() -> Any:
            field = self._class(_PYTHON + of).getDeclaredField(name)
            field.setAccessible(True)
            return field

        return self._once((of, name), find)

    def _method(self, of: str, name: str, *types: Any) -> Any:
        """A handle of a method, of which only one of its name is asked for."""

        def find() -> Any:
            return self._lookup.unreflect(self._class(of).getMethod(name, self._classes(*types)))

        return self._once((of, name), find)

    def _constructor(self, of: str, *types: Any) -> Any:
        def find() -> Any:
            found = self._class(_PYTHON + of).getConstructor(self._classes(*types))
            return self._lookup.unreflectConstructor(found)

        return self._once((of, "new"), find)

    def _once(self, name: tuple[str, ...], find: Callable[[], Any]) -> Any:
        """What a question to the JVM has given: its answer stays the same."""
        if name not in self._found:
            self._found[name] = find()
        return self._found[name]

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
